"""The machine as a whole: its initial files, its processes, and its end."""

import os
import shutil
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

from . import PATHS, PROCESSES, STATE

MARK = "SANDYARD_RUN"
"""The variable that marks all processes of a machine."""

_GRACE_SEC = 2
_KILL_SEC = 5
_POLL_SEC = 0.05
_LISTENING = "0A"


def prepare() -> None:
    """Make the folders, and drop a snapshot's records of processes that are gone."""
    os.makedirs(PATHS.workspace, exist_ok=True)
    shutil.rmtree(PROCESSES, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(STATE, "program.json"))


def end() -> None:
    """End all processes, including those that left their parents: SIGTERM first, then SIGKILL."""
    for number, patience_sec in ((signal.SIGTERM, _GRACE_SEC), (signal.SIGKILL, _KILL_SEC)):
        until = time.monotonic() + patience_sec
        signalled: set[int] = set()
        while (left := set(_marked())) and time.monotonic() < until:
            _signal(left - signalled if number == signal.SIGTERM else left, number)
            signalled |= left
            time.sleep(_POLL_SEC)


def usage() -> dict[str, int]:
    """The size of the workspace in bytes, and the number of processes."""
    return {
        "workspace_bytes": sum(_sizes(PATHS.workspace)),
        "processes": sum(name.isdigit() for name in os.listdir("/proc")),
    }


def listening(network: str = "/proc/net") -> list[int]:
    """The listening TCP ports, sorted, by the kernel's tables of a network."""
    ports = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError), open(f"{network}/{table}", encoding="ascii") as file:
            for line in list(file)[1:]:
                fields = line.split()
                if fields[3] == _LISTENING:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(ports)


def _marked() -> Iterator[int]:
    """The processes of this machine, except this one and its ancestors."""
    mark = f"{MARK}={os.environ.get(MARK, '')}".encode()
    spared = set(_ancestors(os.getpid()))
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in spared:
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as environ:
                if mark in environ.read().split(b"\0"):
                    yield int(name)


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 0:
        yield pid
        with open(f"/proc/{pid}/stat", "rb") as file:
            pid = int(file.read().rpartition(b")")[2].split()[1])


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def _sizes(folder: str) -> Iterator[int]:
    yield os.lstat(folder).st_size
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(OSError):
                yield os.lstat(os.path.join(here, name)).st_size
