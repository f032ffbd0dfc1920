"""The life of a Pod's machine: its deadline, its end, and what it uses."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_GRACE_SEC = 2
_KILL_SEC = 5
_POLL_SEC = 0.05
_REAP_SEC = 1
_TICK_SEC = 1
_TERMINATION_LOG = Path("/dev/termination-log")
_CGROUP = Path("/sys/fs/cgroup")


class Lifetime:
    """Ends all other processes at the deadline, at a request or at SIGTERM, and records when and
    why. The files stay until `exit`."""

    def __init__(self, deadline_at: float) -> None:
        self.deadline_at = deadline_at
        self.ended: dict[str, Any] | None = None
        self._moved = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    async def keep(self) -> None:
        """End at the deadline, wherever it is moved to."""
        while (left := self.deadline_at - time.time()) > 0:
            self._moved.clear()
            with suppress(TimeoutError):  # by the clock of the wall, which may be set
                await asyncio.wait_for(self._moved.wait(), min(left, _TICK_SEC))
        await self.end("timeout")

    def move(self, deadline_at: float) -> bool:
        """Whether it was moved: what has ended has no deadline."""
        if self.ended is None:
            self.deadline_at = deadline_at
            self._moved.set()
        return self.ended is None

    async def end(self, reason: str) -> None:
        """Return when no other process is left; of several reasons the first is recorded."""
        if self.ended is None:
            self.ended = {"reason": reason, "ended_at": time.time()}
            self._ending = asyncio.create_task(_end_processes())
        if self._ending is not None:
            await asyncio.shield(self._ending)

    def exit(self) -> None:
        with suppress(OSError):
            _TERMINATION_LOG.write_text(json.dumps(self.ended))
        os._exit(0)

    async def reap(self, own: set[int]) -> None:
        """Process 1 is the parent of all orphans. `own` are waited for by others."""
        while True:
            await asyncio.sleep(_REAP_SEC)
            _reap(own)


def usage() -> dict[str, float]:
    """By the machine's control group; without one, by its processes."""
    try:
        lines = (_CGROUP / "cpu.stat").read_text().splitlines()
        cpu_sec = (
            next(int(line.split()[1]) for line in lines if line.startswith("usage_usec")) / 1e6
        )
        memory_bytes = int((_CGROUP / "memory.current").read_text())
    except (OSError, KeyError):
        cpu_sec, memory_bytes = _usage_of_processes()
    return {"cpu_seconds": cpu_sec, "memory_bytes": memory_bytes}


def _usage_of_processes() -> tuple[float, int]:
    ticks = pages = 0
    for pid, _ in _processes():
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
            pages += int(fields[21])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")


async def _end_processes() -> None:
    """SIGTERM first, then SIGKILL. For process 1, -1 means all but itself."""
    if os.getpid() != 1:
        return
    for number, patience_sec in ((signal.SIGTERM, _GRACE_SEC), (signal.SIGKILL, _KILL_SEC)):
        with suppress(ProcessLookupError):
            os.kill(-1, number)
        until = time.monotonic() + patience_sec
        while _are_left() and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SEC)


def _reap(own: set[int]) -> None:
    for pid, state in list(_processes()):
        if state == "Z" and pid not in own:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _are_left() -> bool:
    return any(pid != 1 and state != "Z" for pid, state in _processes())


def _processes() -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = (folder / "stat").read_text()
            yield int(folder.name), stat.rpartition(")")[2].split()[0]
