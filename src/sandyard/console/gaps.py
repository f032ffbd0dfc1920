"""Gaps in a device's readings, as a strip over the displayed range."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["before", "readings", "gap"]


@dataclass(frozen=True, slots=True)
class Stretch:
    kind: Kind
    begins_at: float
    ends_at: float
    offset: float
    """Offset from the start of the range, and length, both in percent of it."""
    share: float

    @property
    def seconds(self) -> float:
        return self.ends_at - self.begins_at


@dataclass(frozen=True, slots=True)
class Strip:
    label: str
    stretches: Sequence[Stretch]

    @property
    def gaps(self) -> list[Stretch]:
        return [each for each in self.stretches if each.kind == "gap"]


def strip(label: str, answer: Mapping[str, Any], begins_ms: int, ends_ms: int) -> Strip:
    """`answer` is the API's for the range, which it may begin later."""
    found: list[Stretch] = []
    at = begins_ms

    def share(length_ms: int) -> float:
        return round(100 * length_ms / (ends_ms - begins_ms), 3)

    def go_to(end: int, kind: Kind) -> int:
        if end > at:
            offset, length = share(at - begins_ms), share(end - at)
            found.append(Stretch(kind, at / 1000, end / 1000, offset, length))
        return max(end, at)

    at = go_to(min(answer["from_ms"], ends_ms), "before")
    for gap in answer["gaps"]:
        at = go_to(gap["from_ms"], "readings")
        at = go_to(gap["to_ms"], "gap")
    go_to(ends_ms, "readings")
    return Strip(label, found)
