"""The memory of a tree of processes, where no control group counts it.

Counted by thread: a process whose first thread has ended shows nothing under its own number. And by
object: memory that is shared and has no file behind it stays as long as one page of it is mapped
anywhere, touched or not.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sandyard.runtime.local.host import processes
from sandyard.runtime.local.host.socket_diagnosis import SocketDiagnosis

_SHARED = b"/dev/zero (deleted)"
_MAPPING_BYTES = 256
"""Kernel memory per mapping."""
_PIPE_BYTES = 65_536
"""The most that a pipe holds; a machine can't enlarge one (`seccomp`)."""
_FEW_FILES = 256
"""Up to this many open files are not examined one by one."""
TMPFS_INODE_BYTES = 1024
"""Kernel memory per name in a tmpfs, which its size does not include."""
_FEW = 32
"""Up to this many hold too little to be examined one by one."""
_LOST_BYTES = 256 << 10
"""The most held by a closed socket while its peer has not read what it sent."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a process tree; pages that several share are counted once."""

    private: int
    mapped_files: int
    """Clean file pages, which the kernel can reclaim."""
    shared: int
    """Shared memory without a file behind it, and in-memory folders."""
    kernel: int = 0

    @property
    def total(self) -> int:
        return self.private + self.mapped_files + self.shared

    @property
    def held(self) -> int:
        """What the kernel can't reclaim."""
        return self.private + self.shared + self.kernel


def hidden_bytes(pids: Iterable[int]) -> tuple[int, int]:
    """Bytes in no process's total: of shared objects without a file behind them, whole; and of the
    kernel, for page tables, descriptions of mappings, and pipes."""
    pids = list(pids)
    objects: dict[str, int] = {}
    kernel = _in_pipes(pids)
    for pid in pids:
        thread = processes.living_thread(pid)
        if thread is None:
            continue
        maps = _read(thread / "maps")
        kernel += maps.count(b"\n") * _MAPPING_BYTES + _page_table_bytes(thread)
        if _SHARED in maps:
            _add_shared(objects, thread, maps)
    return sum(objects.values()), kernel


def memory(pids: Iterable[int], *, in_folders: int = 0, in_sockets: int = 0) -> Memory:
    """Exact memory of these processes, plus that of in-memory folders and sockets."""
    pids = list(pids)
    private = mapped_files = mapped_shared = 0
    for rollup in map(_rollup, pids):
        private += rollup.get("Pss_Anon", 0)
        mapped_files += rollup.get("Pss_File", 0)
        mapped_shared += rollup.get("Pss_Shmem", 0)
    hidden, kernel = hidden_bytes(pids)
    shared = max(mapped_shared, hidden + in_folders)
    return Memory(private, mapped_files, shared, kernel + in_sockets)


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


def _in_pipes(pids: Iterable[int]) -> int:
    """The capacity of their pipes. Threads of one process may have different files open."""
    folders = [str(thread / "fd") for pid in pids for thread in processes.threads(pid)]
    files = [f"{folder}/{name}" for folder in folders for name in _names(folder)]
    if len(files) <= _FEW_FILES:
        return 0
    pipes = {target for file in files if (target := _target(file)).startswith("pipe:")}
    return len(pipes) * _PIPE_BYTES


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - there may be thousands
    except processes.GONE:
        return []


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115 - as above
    except processes.GONE:
        return ""


def _add_shared(objects: dict[str, int], thread: Path, maps: bytes) -> None:
    for line in maps.splitlines():
        if not line.endswith(_SHARED):
            continue
        span, _, offset, _, inode, *_ = line.decode().split()
        begin, end = (int(edge, 16) for edge in span.split("-"))
        known = objects.get(inode, 0)
        if (size := _stored_bytes(thread, span)) is None:
            # Unprivileged users can't read it; then the visible part counts.
            objects[inode] = max(known, int(offset, 16) + end - begin)
        else:
            objects[inode] = max(known, size)


def _stored_bytes(thread: Path, span: str) -> int | None:
    """The actual size of the object behind a mapping, mapped or not."""
    try:
        return (thread / "map_files" / processes.map_file(span)).stat().st_blocks * 512
    except OSError:
        return None


def _page_table_bytes(thread: Path) -> int:
    for line in _read(thread / "status").splitlines():
        if line.startswith(b"VmPTE:"):
            return int(line.split()[1]) * 1024
    return 0


def _rollup(pid: int) -> dict[str, int]:
    thread = processes.living_thread(pid)
    lines = [] if thread is None else _read(thread / "smaps_rollup").decode().splitlines()[1:]
    named = (line.split() for line in lines)
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in named if len(words) > 1}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except processes.GONE:
        return b""


class SocketMemory:
    """For the network of the process `pid`, which is that of the diagnosis."""

    def __init__(self, pid: int, diagnosis: SocketDiagnosis) -> None:
        """Raises OSError."""
        self._diagnosis = diagnosis
        self._counts = os.open(f"/proc/{pid}/net/sockstat", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._counts)

    def held_bytes(self) -> int:
        """Raises OSError."""
        counts = _counts(os.pread(self._counts, 4096, 0))
        if counts.get("sockets", 0) <= _FEW:
            return 0
        unix = self._diagnosis.unix_bytes()
        others = counts.get("TCP", 0) + counts.get("UDP", 0)
        lost = max(0, counts["sockets"] - len(unix) - others)
        inet = self._diagnosis.inet_bytes() if others > _FEW else []
        return sum(unix) + sum(inet) + lost * _LOST_BYTES


def _counts(text: bytes) -> dict[str, int]:
    """The number of sockets by kind: `sockets: used 5`, `TCP: inuse 2 orphan 0 …`."""
    lines = (line.split() for line in text.decode().splitlines())
    return {words[0].rstrip(":"): int(words[2]) for words in lines if len(words) > 2}
