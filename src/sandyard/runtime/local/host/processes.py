"""Processes of this machine: their identity, their parents and their resource use.

Linux has them in /proc, which is cheap enough to read ten times a second.
"""

import os
import signal
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
GONE = (FileNotFoundError, ProcessLookupError, NotADirectoryError, PermissionError)
"""Errors of /proc for processes that have ended. Any other means that it could not be read."""
_ARGUMENTS_BEGIN, _ARGUMENTS_END = 45, 46
"""Indices of the fields of /proc/self/stat after the name."""


def identity(pid: int) -> str | None:
    """A name unique to this process, even among later ones with its pid; None if it has ended."""
    fields = _stat(pid)
    if fields is None or (fields[0] in "ZX" and living_thread(pid) is None):
        return None
    return f"{_boot_id()}/{fields[19]}"


def descendants(pid: int) -> list[int]:
    """All descendants, parents before their children."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = list(_children(waiting.pop()))
        found += children
        waiting += children
    return found


def kill(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def kill_descendants(pid: int, *, within_sec: float = 5) -> bool:
    """Kill all descendants; returns whether they are gone.

    They are stopped first, until no new one appears: a stopped tree loses no member to init and
    grows none while it is being killed.
    """
    until = time.monotonic() + within_sec
    found: dict[int, str] = {}
    while fresh := _living(descendants(pid), besides=found):
        kill(fresh, signal.SIGSTOP)
        found |= fresh
        if time.monotonic() > until:
            break
    kill(found)
    while _living(found) or _living(descendants(pid)):
        if time.monotonic() > until:
            return False
        kill(_living(descendants(pid)))
        time.sleep(0.001)
    return True


def _living(pids: Iterable[int], *, besides: Container[int] = ()) -> dict[int, str]:
    """The living ones, with their identities."""
    named = ((pid, identity(pid)) for pid in pids if pid not in besides)
    return {pid: name for pid, name in named if name is not None}


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of these processes and of their ended children."""
    stats = filter(None, map(_stat, pids))
    ticks = sum(int(field) for fields in stats for field in fields[11:15])
    return float(ticks / os.sysconf("SC_CLK_TCK"))


def resident_bytes(pids: Iterable[int]) -> int:
    """A quick upper bound of their memory: shared pages count for each process."""
    return sum(map(_resident_pages, pids)) * os.sysconf("SC_PAGE_SIZE")


def living_thread(pid: int) -> Path | None:
    """The process's folder in /proc: that of its first thread or, once that has ended, of another
    living one. None if none lives."""
    for thread in _threads(pid):
        fields = _stat(int(thread))
        if fields is not None and fields[0] not in "ZX":
            return _PROC / thread
    return None


def threads(pid: int) -> list[Path]:
    """The /proc folder of each thread: they may have different files open."""
    return [_PROC / thread for thread in _threads(pid)]


def map_file(span: str) -> str:
    """The name in map_files of a mapping that /proc lists in maps: without leading zeros."""
    return "-".join(f"{int(edge, 16):x}" for edge in span.split("-"))


def parent(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[1])


def rename_process(*words: str) -> None:
    """Set what `ps` shows of this process, as far as it fits in place of its original arguments."""
    with suppress(OSError):
        fields = (_PROC / "self/stat").read_text().rpartition(")")[2].split()
        begin, end = int(fields[_ARGUMENTS_BEGIN]), int(fields[_ARGUMENTS_END])
        shown = "\0".join(words).encode()[: end - begin - 1].ljust(end - begin, b"\0")
        with (_PROC / "self/mem").open("r+b", buffering=0) as memory:
            memory.seek(begin)
            memory.write(shown)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/pid/stat from the state on; the name before it may contain anything."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except GONE:
        return None
    return text[text.rindex(")") + 2 :].split()


@cache
def _boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _children(pid: int) -> Iterator[int]:
    try:
        found = list((_PROC / str(pid) / "task").iterdir())
    except GONE:
        return
    for thread in found:
        try:
            listed = (thread / "children").read_text()
        except GONE:
            continue
        yield from map(int, listed.split())


def _threads(pid: int) -> Iterator[str]:
    yield str(pid)
    try:
        listed = list((_PROC / str(pid) / "task").iterdir())
    except GONE:
        return
    yield from (thread.name for thread in listed if thread.name != str(pid))


def _resident_pages(pid: int) -> int:
    for thread in _threads(pid):
        try:
            size, resident, *_ = (_PROC / thread / "statm").read_text().split()
        except GONE:
            continue
        if size != "0":
            return int(resident)
    return 0
