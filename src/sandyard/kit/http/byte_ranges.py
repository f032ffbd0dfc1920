"""Parses the `Range` header of a file request."""

import re
from dataclasses import dataclass

from sandyard.kit.errors import RangeNotSatisfiableError

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """`length` bytes from `offset`, of `size`."""

    offset: int
    length: int
    size: int

    @property
    def content_range(self) -> str:
        return f"bytes {self.offset}-{self.offset + self.length - 1}/{self.size}"


def parse_range(header: str | None, *, size: int) -> ByteRange | None:
    """None for the whole file; anything else than one range of bytes is ignored, as HTTP says.
    RangeNotSatisfiableError if it is empty."""
    found = _RANGE.fullmatch(header or "")
    if found is None or found.group(1) == found.group(2) == "":
        return None
    first, last = found.groups()
    if not first:
        begin, end = max(0, size - int(last)), size - 1
    else:
        begin, end = int(first), min(int(last or size), size - 1)
        if last and int(last) < begin:
            return None
    if begin > end:
        raise RangeNotSatisfiableError(details={"size_bytes": size})
    return ByteRange(begin, end - begin + 1, size)
