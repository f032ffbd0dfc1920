"""Processes of this machine: which is which, whose children they are, and what they use.

Linux tells it in /proc, which costs little enough to look ten times a second. Elsewhere, where
nothing is isolated anyway, psutil does.
"""

import os
import signal
import time
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
HAS_PROC = (_PROC / "self/stat").exists()
_MAPS_READ_AT_MOST = 4_000_000


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a process tree; pages that several share are counted once."""

    private: int
    mapped_files: int
    """Clean copies of files, which the kernel takes back when it needs them."""
    shared: int
    """Shared with no file behind them, touched or only reserved."""

    @property
    def total(self) -> int:
        return self.private + self.mapped_files + self.shared

    @property
    def held(self) -> int:
        """What the kernel can't take back."""
        return self.private + self.shared


def identity(pid: int) -> str | None:
    """A name that no other process has, not even a later one with this pid; None if it is gone."""
    if not HAS_PROC:
        from sandyard.runtime.local import processes_psutil

        return processes_psutil.identity(pid)
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return f"{_boot_id()}/{fields[19]}"


def descendants(pid: int) -> list[int]:
    """All processes below this one, parents before their children."""
    if not HAS_PROC:
        from sandyard.runtime.local import processes_psutil

        return processes_psutil.descendants(pid)
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
    """Kill all processes below; whether they are gone.

    They are stopped first, until none is new: a tree that stands still loses no member to init
    and grows none while it is being killed.
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
        time.sleep(0.005)
    return True


def _living(pids: Iterable[int], *, besides: Container[int] = ()) -> dict[int, str]:
    """Those that live, with their identities."""
    named = ((pid, identity(pid)) for pid in pids if pid not in besides)
    return {pid: name for pid, name in named if name is not None}


def cpu_seconds(pids: Iterable[int]) -> float:
    """Time used by these and by those of their children that are gone."""
    if not HAS_PROC:
        from sandyard.runtime.local import processes_psutil

        return processes_psutil.cpu_seconds(pids)
    stats = filter(None, map(_stat, pids))
    ticks = sum(int(field) for fields in stats for field in fields[11:15])
    return float(ticks / os.sysconf("SC_CLK_TCK"))


def resident_bytes(pids: Iterable[int]) -> int:
    """A quick upper bound of what these hold: shared pages count for each that sees them."""
    return sum(pages for _, pages in _statm(pids)) * os.sysconf("SC_PAGE_SIZE")


def reserved_bytes(pids: Iterable[int]) -> int:
    """The address space of these: what they might hold unseen."""
    return sum(pages for pages, _ in _statm(pids)) * os.sysconf("SC_PAGE_SIZE")


def used_bytes(memory_folders: Iterable[str]) -> int:
    """What is in these folders, each an in-memory file system of its own."""
    return sum(map(_used_bytes, memory_folders))


def capacity_bytes(folder: str) -> int:
    """The size of the file system that the folder is on."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize


def memory(pids: Iterable[int], *, memory_folders: Iterable[str] = ()) -> Memory:
    """What these processes and folders hold, exactly."""
    pids = list(pids)
    if not HAS_PROC:
        from sandyard.runtime.local import processes_psutil

        return Memory(processes_psutil.resident_bytes(pids), 0, 0)
    private = mapped_files = shared = 0
    for pid in pids:
        rollup = _rollup(pid)
        private += rollup.get("Pss_Anon", 0)
        mapped_files += rollup.get("Pss_File", 0)
        shared += rollup.get("Pss_Shmem", 0)
    # A page that was touched and unmapped from the tables is still there but in no process's sum.
    unseen = _reserved_shared_bytes(pids) + used_bytes(memory_folders)
    return Memory(private, mapped_files, max(shared, unseen))


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/pid/stat from the state on; the name before it may hold anything."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def _boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _children(pid: int) -> Iterator[int]:
    try:
        threads = list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return
    for thread in threads:
        try:
            listed = (thread / "children").read_text()
        except OSError:
            continue
        yield from map(int, listed.split())


def _statm(pids: Iterable[int]) -> Iterator[tuple[int, int]]:
    if not HAS_PROC:
        from sandyard.runtime.local import processes_psutil

        pages = processes_psutil.resident_bytes(list(pids)) // os.sysconf("SC_PAGE_SIZE")
        yield pages, pages
        return
    for pid in pids:
        try:
            size, resident, *_ = (_PROC / str(pid) / "statm").read_text().split()
        except (OSError, ValueError):
            continue
        yield int(size), int(resident)


def _rollup(pid: int) -> dict[str, int]:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    named = (line.split() for line in lines)
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in named if len(words) > 1}


def _reserved_shared_bytes(pids: Iterable[int]) -> int:
    """Sizes of shared mappings with no file behind them, each counted once."""
    sizes: dict[str, int] = {}
    for pid in pids:
        try:
            with (_PROC / str(pid) / "maps").open(errors="replace") as file:
                lines = file.read(_MAPS_READ_AT_MOST).splitlines()
        except OSError:
            continue
        for line in lines:
            if line.endswith("/dev/zero (deleted)"):
                span, _, _, _, inode, *_ = line.split()
                begin, end = (int(edge, 16) for edge in span.split("-"))
                sizes[inode] = max(sizes.get(inode, 0), end - begin)
    return sum(sizes.values())


def _used_bytes(path: str) -> int:
    try:
        found = os.statvfs(path)
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize
