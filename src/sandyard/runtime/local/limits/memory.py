"""The memory of a tree of processes, where no control group and no kernel of its own counts it.

It is advisory: what processes and in-memory folders show is counted, what the kernel holds for them
is not.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sandyard.runtime.local.host import processes

TMPFS_INODE_BYTES = 1024
"""Kernel memory per name in a tmpfs, which its size does not include."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a process tree; pages that several share are counted once."""

    private: int
    mapped_files: int
    """Clean file pages, which the kernel can reclaim."""
    shared: int
    """Mapped shared memory, and in-memory folders."""

    @property
    def total(self) -> int:
        return self.held + self.mapped_files

    @property
    def held(self) -> int:
        """What the kernel can't reclaim."""
        return self.private + self.shared


def memory(pids: Iterable[int], *, in_folders: int = 0) -> Memory:
    """Of these processes, plus that of in-memory folders."""
    rollups = [_rollup(pid) for pid in pids]
    private, files, shared = (
        sum(rollup.get(name, 0) for rollup in rollups)
        for name in ("Pss_Anon", "Pss_File", "Pss_Shmem")
    )
    return Memory(private, files, max(shared, in_folders))


def memory_folder(pid: int, name: str) -> int | None:
    """An in-memory folder of the machine that this process is in, held open so that it outlives any
    process. None if it does not exist."""
    try:
        return os.open(f"/proc/{pid}/root/{name}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def folder_bytes(folder: int) -> int:
    """The bytes stored in it, plus kernel memory for each name."""
    found = os.statvfs(folder)
    files = (found.f_files - found.f_ffree) * TMPFS_INODE_BYTES
    return (found.f_blocks - found.f_bfree) * found.f_frsize + files


def _rollup(pid: int) -> dict[str, int]:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except processes.GONE:
        return {}
    named = (line.split() for line in lines)
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in named if len(words) > 1}
