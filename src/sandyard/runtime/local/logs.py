"""What a program writes, in numbered pieces of which only the last few are kept."""

import time
from collections.abc import Iterator
from pathlib import Path

from sandyard.runtime.model import log_line

_PIECES = 4


class LogWriter:
    """Appends, and drops the oldest piece when a new one begins."""

    def __init__(self, folder: Path, *, limit_bytes: int, bytes_per_sec: int = 1_000_000) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._piece_bytes = max(1, limit_bytes // _PIECES)
        self._bytes_per_sec = bytes_per_sec
        self._number = 0
        self._open_next()
        self._owed_until = 0.0

    def write(self, content: bytes) -> float:
        """Append; say for how long to read nothing more, so that the rate holds."""
        pause = self._pace(len(content))
        while content:
            room = self._piece_bytes - self._written
            self._file.write(content[:room])
            self._written += len(content[:room])
            content = content[room:]
            if self._written >= self._piece_bytes:
                self._file.close()
                self._open_next()
        self._file.flush()
        return pause

    def _pace(self, length: int) -> float:
        """Whoever writes faster than that is made to wait; a burst of a second's worth is free."""
        now = time.monotonic()
        self._owed_until = max(now - 1, self._owed_until) + length / self._bytes_per_sec
        return max(0.0, self._owed_until - now)

    def close(self) -> None:
        self._file.close()

    def _open_next(self) -> None:
        self._number += 1
        self._file = (self._folder / f"{self._number:08}").open("ab")
        self._written = 0
        if self._number > _PIECES:
            (self._folder / f"{self._number - _PIECES:08}").unlink(missing_ok=True)


class LogReader:
    """Reads on from where it was; pieces that were dropped meanwhile are passed over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._offset = 0
        self._rest = b""

    def lines(self, *, all_written: bool = False) -> Iterator[str]:
        """The lines that were completed since; the last, unfinished one when all is written."""
        for piece in self._pieces():
            number = int(piece.name)
            offset = self._offset if number == self._number else 0
            try:
                with piece.open("rb") as file:
                    file.seek(offset)
                    content = file.read()
            except FileNotFoundError:
                continue
            if number > self._number + 1 and self._number:
                self._rest = b""
            self._number, self._offset = number, offset + len(content)
            *whole, self._rest = (self._rest + content).split(b"\n")
            yield from map(log_line, whole)
        if all_written and self._rest:
            yield log_line(self._rest)
            self._rest = b""

    def _pieces(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(piece for piece in self._folder.iterdir() if int(piece.name) >= self._number)


def tail(folder: Path, lines: int) -> list[str]:
    """The last lines, oldest first."""
    if lines <= 0:
        return []
    return list(LogReader(folder).lines(all_written=True))[-lines:]
