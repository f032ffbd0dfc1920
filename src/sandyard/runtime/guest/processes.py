"""The processes started by sessions: each has a folder, with its state and its output, that its
shim writes.

Output is in files of limited size, named by the offset where they begin, with a frame for each
piece. A gap between the end of one file and the begin of the next was not stored.
"""

import base64
import fcntl
import json
import os
import shutil
import signal as signals
import struct
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, BinaryIO, NamedTuple

from . import PROCESSES, RefusedError
from .channels import set_size

PROGRAM = "program"
"""The id of the machine's main program."""
RETAINED = 32
"""The number of ended processes that are still listed."""
LOST = 128 + signals.SIGKILL
"""A process that ended because its shim was killed is reported as killed."""
_POLL_SEC = 0.02
_HEADER = struct.Struct("!BI")
_STREAMS = ("stdout", "stderr", "terminal")
_FILE_BYTES = 2 << 20
"""At this size the next file begins; the one before it is retained."""
_PREFIX = "output."


class NotFoundError(RefusedError):
    def __init__(self) -> None:
        super().__init__("PROCESS_NOT_FOUND")


def list_all() -> list[dict[str, Any]]:
    """Oldest first."""
    found = []
    for name in _ids():
        with suppress(NotFoundError):
            found.append(get(name))
    return sorted(found, key=lambda process: float(process["started_at"]))


def get(process_id: str) -> dict[str, Any]:
    folder = folder_of(process_id)
    process = read(folder, "process")
    if process is None:
        raise NotFoundError
    return {**process, **(_end_of(folder) or {})}


def wait(process_id: str, timeout_sec: float) -> dict[str, Any]:
    """The process when it has ended; on timeout, its current state."""
    folder = folder_of(process_id)
    until = time.monotonic() + timeout_sec
    while not has_ended(folder) and time.monotonic() < until:
        time.sleep(_POLL_SEC)
    return get(process_id)


def signal(process_id: str, number: int) -> None:
    process = get(process_id)
    if not 0 < number < signals.NSIG:
        raise RefusedError("INVALID_SIGNAL")
    if process.get("exit_code") is None:
        with suppress(ProcessLookupError):
            os.killpg(process["pid"], number)


def resize(process_id: str, columns: int, rows: int) -> None:
    process = get(process_id)
    if not process["is_terminal"]:
        raise RefusedError("NOT_A_TERMINAL")
    if process.get("exit_code") is None:
        terminal = os.open(process["terminal"], os.O_RDWR | os.O_NOCTTY)
        try:
            set_size(terminal, columns, rows)
        finally:
            os.close(terminal)


def folder_of(process_id: str) -> str:
    folder = os.path.join(PROCESSES, process_id)
    if not os.path.exists(os.path.join(folder, "process.json")):
        raise NotFoundError
    return folder


def has_ended(folder: str) -> bool:
    return _end_of(folder) is not None


def write(folder: str, name: str, record: dict[str, Any]) -> None:
    """Write it atomically."""
    draft = os.path.join(folder, f".{name}")
    with open(draft, "w", encoding="ascii") as file:
        json.dump(record, file)
    os.replace(draft, os.path.join(folder, f"{name}.json"))


def drop_oldest() -> None:
    commands = [process for process in list_all() if process["id"] != PROGRAM]
    ended = [process for process in commands if process.get("exit_code") is not None]
    for process in ended[:-RETAINED]:
        shutil.rmtree(os.path.join(PROCESSES, str(process["id"])), ignore_errors=True)


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
        self._ends_at = _end_of_output(folder)
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


def _end_of_output(folder: str) -> int:
    """Where the output of a program that is started again continues."""
    with closing(Reader(folder)) as reader:
        return max((frame.ends_at for frame in reader.frames()), default=0)


def follow(process_id: str, offset: int, wait: bool) -> Iterator[dict[str, Any] | None]:
    """The output from the offset on; with `wait`, until the process has ended. None while there is
    nothing new."""
    folder = folder_of(process_id)
    with closing(Reader(folder)) as reader:
        is_over = False
        while not is_over:
            is_over = not wait or has_ended(folder)
            for frame in reader.frames():
                if frame.ends_at > offset:
                    yield _to_json(frame, offset)
                    offset = frame.ends_at
            if not is_over:
                time.sleep(_POLL_SEC)
                yield None


def read_log(process_id: str, begin: int | None) -> dict[str, Any]:
    """What is stored from this byte on, without gaps: nothing before a gap is returned."""
    log, begins_at = b"", begin or 0
    with (
        suppress(NotFoundError),
        closing(Reader(folder_of(process_id))) as reader,
    ):
        for frame in reader.frames():
            if frame.ends_at > begins_at + len(log):
                data = frame.data[max(0, begins_at + len(log) - frame.begins_at) :]
                if frame.ends_at - len(data) > begins_at + len(log):
                    log, begins_at = b"", frame.begins_at
                log += data
    return {"begins_at": begins_at, "data": _encoded(log)}


def _end_of(folder: str) -> dict[str, Any] | None:
    if (ended := read(folder, "ended")) is not None:
        return ended
    if is_unwatched(folder):
        ended_at = os.stat(folder).st_mtime
        return read(folder, "ended") or {"exit_code": LOST, "ended_at": ended_at}
    return None


def is_unwatched(folder: str) -> bool:
    """Whether its shim has ended, or never was."""
    try:
        with open(os.path.join(folder, "lock"), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass
    return True


def read(folder: str, name: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(folder, f"{name}.json"), encoding="ascii") as file:
            record: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    return record


def _ids() -> list[str]:
    try:
        return os.listdir(PROCESSES)
    except FileNotFoundError:
        return []


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
