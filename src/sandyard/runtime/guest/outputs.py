"""A process's output, stored in files of limited size and read from any offset.

A file has a frame for each piece of output, and is named by the offset where it begins. A gap
between the end of one file and the begin of the next was not stored.
"""

import base64
import os
import struct
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, BinaryIO, NamedTuple

from . import processes

_HEADER = struct.Struct("!BI")
_STREAMS = ("stdout", "stderr", "terminal")
_FILE_BYTES = 2 << 20
"""At this size the next file begins; the one before it is retained."""
_PREFIX = "output."
_POLL_SEC = 0.02


class Frame(NamedTuple):
    stream: str
    data: bytes
    begins_at: int

    @property
    def ends_at(self) -> int:
        return self.begins_at + len(self.data)


class Writer:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._ends_at = 0
        self._file: int | None = None
        self._size = 0

    def write(self, stream: str, data: bytes) -> None:
        """Store it; only what the disk does not accept is missing."""
        frame = _HEADER.pack(_STREAMS.index(stream), len(data)) + data
        try:
            if self._file is None or self._size >= _FILE_BYTES:
                self._begin_file()
            self._append(frame)
        except OSError:
            self.close()
        self._ends_at += len(data)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def _begin_file(self) -> None:
        for name in _names(self._folder)[:-1]:
            os.unlink(os.path.join(self._folder, name))
        path = os.path.join(self._folder, f"{_PREFIX}{self._ends_at:020}")
        self.close()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = 0

    def _append(self, frame: bytes) -> None:
        if self._file is not None and os.write(self._file, frame) < len(frame):
            os.ftruncate(self._file, self._size)
            raise OSError("the disk is full")
        self._size += len(frame)


class Reader:
    """Continues where it stopped; a frame that is still being written is read the next time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._name = ""
        self._file: BinaryIO | None = None
        self._at = 0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def frames(self) -> Iterator[Frame]:
        while True:
            yield from self._in_file()
            following = [name for name in _names(self._folder) if name > self._name]
            if not following:
                return
            yield from self._in_file()  # added before the next one began
            with suppress(FileNotFoundError):
                self._open(following[0])

    def _open(self, name: str) -> None:
        opened = open(os.path.join(self._folder, name), "rb")  # noqa: SIM115 - kept open
        self.close()
        self._file, self._name = opened, name
        self._at = int(name[len(_PREFIX) :])

    def _in_file(self) -> Iterator[Frame]:
        if self._file is None:
            return
        while len(header := self._file.read(_HEADER.size)) == _HEADER.size:
            stream, length = _HEADER.unpack(header)
            if len(data := self._file.read(length)) < length:
                self._file.seek(-len(data), os.SEEK_CUR)
                break
            frame = Frame(_STREAMS[stream], data, self._at)
            self._at = frame.ends_at
            yield frame
        self._file.seek(-len(header), os.SEEK_CUR)


def follow(process_id: str, offset: int, wait: bool) -> Iterator[dict[str, Any]]:
    """The output from the offset on; with `wait`, until the process has ended."""
    folder = processes.folder_of(process_id)
    with closing(Reader(folder)) as reader:
        is_over = False
        while not is_over:
            is_over = not wait or processes.has_ended(folder)
            for frame in reader.frames():
                if frame.ends_at > offset:
                    yield _to_json(frame, offset)
                    offset = frame.ends_at
            if not is_over:
                time.sleep(_POLL_SEC)


def read_log(process_id: str, begin: int | None) -> dict[str, Any]:
    """What is stored from this byte on, without gaps: nothing before a gap is returned."""
    log, begins_at = b"", begin or 0
    with (
        suppress(processes.NotFoundError),
        closing(Reader(processes.folder_of(process_id))) as reader,
    ):
        for frame in reader.frames():
            if frame.ends_at > begins_at + len(log):
                data = frame.data[max(0, begins_at + len(log) - frame.begins_at) :]
                if frame.ends_at - len(data) > begins_at + len(log):
                    log, begins_at = b"", frame.begins_at
                log += data
    return {"begins_at": begins_at, "data": _encoded(log)}


def _to_json(frame: Frame, offset: int) -> dict[str, Any]:
    begins_at = max(offset, frame.begins_at)
    return {
        "stream": frame.stream,
        "data": _encoded(frame.data[begins_at - frame.begins_at :]),
        "offset": frame.ends_at,
        "skipped": begins_at - offset,
    }


def _names(folder: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.startswith(_PREFIX))


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()
