"""Splits what arrives in pieces into lines of a limited length."""


class LineReader:
    """Holds no more than one line: a longer one is cut, and its rest is the next line. No byte is
    copied more than twice, however small the pieces are."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are now complete, without their ends."""
        if b"\n" not in data and len(self._rest) + len(data) <= self._most_bytes:
            self._rest += data
            return []
        *lines, rest = (bytes(self._rest) + data).split(b"\n")
        found = [part for line in lines for part in self._cut(line)]
        *full, last = self._cut(rest)
        self._rest = bytearray(last)
        return found + full

    def end(self) -> list[bytes]:
        """What is left without an end."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest else []

    def _cut(self, line: bytes) -> list[bytes]:
        most = self._most_bytes
        return [line[at : at + most] for at in range(0, len(line), most)] or [line]
