"""Output of commands, in the form of API answers."""

import base64
import codecs
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sandyard.runtime.sessions.model import Output

_LONGEST_CHARACTER = 4


class Encoding(StrEnum):
    TEXT = "text"
    """UTF-8; invalid bytes become U+FFFD."""
    BASE64 = "base64"

    def write(self, data: bytes) -> str:
        if self is Encoding.BASE64:
            return base64.b64encode(data).decode()
        return data.decode(errors="replace")


@dataclass(slots=True)
class Tail:
    """The last bytes of a stream, at most `limit`."""

    limit: int
    data: bytearray = field(default_factory=bytearray)
    is_truncated: bool = False

    def add(self, output: Output) -> None:
        self.is_truncated |= output.skipped > 0
        self.data += output.data
        if len(self.data) > self.limit:
            self.is_truncated = True
            del self.data[: -self.limit]


@dataclass(frozen=True, slots=True)
class Written:
    """A command's output, up to a limit for each stream."""

    stdout: Tail
    stderr: Tail

    def add(self, output: Output) -> None:
        """A terminal's output counts as standard output."""
        (self.stderr if output.stream == "stderr" else self.stdout).add(output)


class WholeCharacters:
    """Splits outputs so that none ends inside a character, and each offset is after a whole one."""

    def __init__(self) -> None:
        self._held: Output | None = None

    def add(self, output: Output) -> Iterator[Output]:
        if self._held is not None and (self._held.stream != output.stream or output.skipped):
            yield from self.rest()
        data = output.data if self._held is None else self._held.data + output.data
        held = _incomplete(data)
        whole = data[: len(data) - held]
        self._held = replace(output, data=data[len(whole) :], skipped=0) if held else None
        if whole or output.skipped:
            yield replace(output, data=whole, offset=output.offset - held)

    def rest(self) -> Iterator[Output]:
        if self._held is not None:
            yield self._held
        self._held = None


async def in_whole_characters(outputs: AsyncIterator[Output]) -> AsyncIterator[Output]:
    cutter = WholeCharacters()
    async for output in outputs:
        for whole in cutter.add(output):
            yield whole
    for whole in cutter.rest():
        yield whole


def joined(outputs: Iterable[Output]) -> Iterator[Output]:
    last: Output | None = None
    for output in outputs:
        if last is not None and last.stream == output.stream and not output.skipped:
            last = replace(last, data=last.data + output.data, offset=output.offset)
            continue
        if last is not None:
            yield last
        last = output
    if last is not None:
        yield last


def _incomplete(data: bytes) -> int:
    """How many bytes at the end are the start of an incomplete character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-_LONGEST_CHARACTER:])
    return len(decoder.getstate()[0])
