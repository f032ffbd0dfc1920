"""A program's output, in numbered pieces of which only the last few are stored."""

import time
from pathlib import Path

from sandyard.runtime.model import Log
from sandyard.runtime.records.run_folder import entries

_PIECES = 4


class LogWriter:
    """Appends, and drops the oldest piece when a new one begins."""

    def __init__(self, folder: Path, *, limit_bytes: int, bytes_per_sec: int = 1_000_000) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._piece_bytes = _piece_bytes(limit_bytes)
        self._bytes_per_sec = bytes_per_sec
        self._number = 0
        self._open_next()
        self._owed_until = 0.0

    def write(self, content: bytes) -> float:
        """Append; returns how long to pause reading, to keep to the rate."""
        pause = self._delay_sec(len(content))
        while content:
            left = self._piece_bytes - self._written
            self._file.write(content[:left])
            self._written += len(content[:left])
            content = content[left:]
            if self._written >= self._piece_bytes:
                self._file.close()
                self._open_next()
        self._file.flush()
        return pause

    def _delay_sec(self, length: int) -> float:
        """How long a writer above the rate has to wait; a burst of a second's worth is free."""
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


def read(folder: Path, begin: int | None, *, limit_bytes: int) -> Log:
    """What is stored from this byte on; with None, all of it."""
    piece_bytes = _piece_bytes(limit_bytes)
    found = Log(begin or 0, b"")
    for piece in entries(folder):
        piece_begin = (int(piece.name) - 1) * piece_bytes
        first = max(found.begins_at + len(found.content), piece_begin)
        try:
            with piece.open("rb") as file:
                file.seek(first - piece_begin)
                content = file.read()
        except FileNotFoundError:
            continue  # dropped meanwhile
        if first > found.begins_at + len(found.content):
            found = Log(first, content)  # what came before has been dropped
        else:
            found = Log(found.begins_at, found.content + content)
    return found


def _piece_bytes(limit_bytes: int) -> int:
    return max(1, limit_bytes // _PIECES)
