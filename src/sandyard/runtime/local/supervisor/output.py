"""The last part of a process's output, addressed by byte offset from its beginning."""

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_SHARE = 0.25
_BURST_SEC = 0.5


@dataclass(frozen=True, slots=True)
class Chunk:
    begins_at: int
    stream: str
    length: int


@dataclass(frozen=True, slots=True)
class OutputSlice:
    """Part of the output, in order; the next read starts at `offset`."""

    chunks: tuple[tuple[str, int], ...]
    data: bytes
    offset: int
    skipped: int


class OutputRing:
    """Stores the last `size` bytes in an unnamed file, so that nothing has to remove it."""

    def __init__(self, folder: Path, *, size: int) -> None:
        self._size = size
        self._folder = folder
        self._file: int | None = None
        """Created on the first write: many commands are silent."""
        self._chunks: deque[Chunk] = deque()
        self.end = 0

    @property
    def retained(self) -> int:
        """The number of bytes still stored."""
        return min(self.end, self._size)

    @property
    def begin(self) -> int:
        """The offset of the first byte still stored."""
        return self.end - self.retained

    def write(self, stream: str, data: bytes) -> None:
        if len(data) > self._size:  # what would be overwritten at once is not stored
            self.end += len(data) - self._size
            self._chunks.clear()
            data = data[-self._size :]
        self._put(self.end, data)
        last = self._chunks[-1] if self._chunks else None
        if last is not None and last.stream == stream:
            self._chunks[-1] = Chunk(last.begins_at, stream, last.length + len(data))
        else:
            self._chunks.append(Chunk(self.end, stream, len(data)))
        self.end += len(data)
        while self._chunks and self._chunks[0].begins_at + self._chunks[0].length <= self.begin:
            self._chunks.popleft()

    def read(self, offset: int, *, most: int) -> OutputSlice:
        """Up to `most` bytes from this offset on; those no longer stored are skipped."""
        first = min(max(offset, self.begin), self.end)
        past = min(first + most, self.end)
        chunks = [
            (chunk.stream, min(past, chunk.begins_at + chunk.length) - max(first, chunk.begins_at))
            for chunk in self._chunks
            if chunk.begins_at < past and chunk.begins_at + chunk.length > first
        ]
        skipped = max(0, first - offset)
        return OutputSlice(tuple(chunks), self._get(first, past - first), past, skipped)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def _put(self, offset: int, data: bytes) -> None:
        if self._file is None:
            self._file = os.open(self._folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        position = offset % self._size
        fits = self._size - position
        os.pwrite(self._file, data[:fits], position)
        if len(data) > fits:
            os.pwrite(self._file, data[fits:], 0)

    def _get(self, offset: int, length: int) -> bytes:
        if self._file is None:
            return b""
        position = offset % self._size
        fits = min(length, self._size - position)
        rest = os.pread(self._file, length - fits, 0) if length > fits else b""
        return os.pread(self._file, fits, position) + rest


class OutputThrottle:
    """Measured by the CPU time of this whole process, since it was last within its share."""

    def __init__(
        self,
        used_sec: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._used_sec = used_sec
        self._clock = clock
        self._since = clock(), used_sec()

    def pause_sec(self) -> float:
        """How long to pause reading; a burst is free."""
        now, used_sec = self._clock(), self._used_sec()
        at, used_before_sec = self._since
        owed_sec = (used_sec - used_before_sec) / _SHARE - (now - at)
        if owed_sec <= 0:
            self._since = now, used_sec
        return owed_sec if owed_sec > _BURST_SEC else 0.0
