"""Finds values in a stream of bytes, also across its pieces."""

from collections.abc import Sequence


class EchoedError(Exception):
    """A value is in the stream."""


class EchoGuard:
    """Lets through what has no value in it. Only what may be the beginning of one waits for the
    next piece."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._values = values
        self._held = b""

    def passed(self, piece: bytes) -> bytes:
        """What may go on. Raises EchoedError."""
        if not self._values:
            return piece
        found = self._held + piece
        if any(value in found for value in self._values):
            raise EchoedError
        held = max(_longest_beginning(found, value) for value in self._values)
        self._held = found[len(found) - held :]
        return found[: len(found) - held]

    def rest(self) -> bytes:
        """At the end of the stream."""
        held, self._held = self._held, b""
        return held


def _longest_beginning(found: bytes, value: bytes) -> int:
    """The length of the end of `found` with which the value begins."""
    tail = found[-(len(value) - 1) :]
    at = tail.find(value[:1])
    while at >= 0:
        if value.startswith(tail[at:]):
            return len(tail) - at
        at = tail.find(value[:1], at + 1)
    return 0
