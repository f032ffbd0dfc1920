"""The processes started by sessions, each with a folder that its shim writes."""

import fcntl
import json
import os
import shutil
import signal as signals
import struct
import termios
import time
from contextlib import suppress
from typing import Any

from . import PROCESSES, RefusedError

RETAINED = 32
"""The number of ended processes that are still listed."""
LOST = 128 + signals.SIGKILL
"""A process that ended because its shim was killed is reported as killed."""
_POLL_SEC = 0.02


class NotFoundError(RefusedError):
    def __init__(self) -> None:
        super().__init__("PROCESS_NOT_FOUND")


def list_all() -> list[dict[str, Any]]:
    """Oldest first."""
    found = []
    for name in _names():
        with suppress(NotFoundError):
            found.append(get(name))
    return sorted(found, key=lambda process: float(process["started_at"]))


def get(process_id: str) -> dict[str, Any]:
    folder = folder_of(process_id)
    process = _read(folder, "process")
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


def set_size(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


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
    ended = [process for process in list_all() if process.get("exit_code") is not None]
    for process in ended[:-RETAINED]:
        shutil.rmtree(os.path.join(PROCESSES, str(process["id"])), ignore_errors=True)


def _end_of(folder: str) -> dict[str, Any] | None:
    """How it ended; None while it runs."""
    if (ended := _read(folder, "ended")) is not None:
        return ended
    with suppress(OSError), open(os.path.join(folder, "lock"), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        ended_at = os.stat(folder).st_mtime
        return _read(folder, "ended") or {"exit_code": LOST, "ended_at": ended_at}
    return None


def _read(folder: str, name: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(folder, f"{name}.json"), encoding="ascii") as file:
            record: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    return record


def _names() -> list[str]:
    try:
        return os.listdir(PROCESSES)
    except FileNotFoundError:
        return []
