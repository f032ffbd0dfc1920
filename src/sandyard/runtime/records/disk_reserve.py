"""The reserve of the disk: never used by sandboxes, so that databases and logs can be written."""

import os
from pathlib import Path

from sandyard.kit.sizes import GIGABYTE
from sandyard.runtime.errors import DiskFullError

_MEMORY = Path("/proc/meminfo")
_UNWRITTEN = ("Dirty:", "Writeback:")
_SHARE = 20


class DiskReserve:
    """By default the larger of 1 GB and 5 % of the disk."""

    def __init__(self, path: Path, reserve_bytes: int | None = None) -> None:
        """`path` is on the disk, and may not exist yet."""
        self._path = path
        self._reserve_bytes = reserve_bytes

    def size_bytes(self) -> int:
        if self._reserve_bytes is not None:
            return self._reserve_bytes
        disk = _disk(self._path)
        return max(GIGABYTE, disk.f_blocks * disk.f_frsize // _SHARE)

    def require(self) -> None:
        """Raises DiskFullError if nothing may be stored now."""
        reserve_bytes, free = self.size_bytes(), free_bytes(self._path)
        if free < reserve_bytes:
            raise DiskFullError(free_bytes=free, reserve_bytes=reserve_bytes)


def free_bytes(path: Path) -> int:
    """Of the disk that has this path."""
    disk = _disk(path)
    return disk.f_bavail * disk.f_frsize


def available_bytes(path: Path) -> int:
    """What is free when all that programs of this host have written is on the disk."""
    return free_bytes(path) - _unwritten_bytes()


def _unwritten_bytes() -> int:
    try:
        lines = _MEMORY.read_text().splitlines()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in lines if line.startswith(_UNWRITTEN)]
    return sum(map(int, sizes)) * 1024


def _disk(path: Path) -> os.statvfs_result:
    try:
        return os.statvfs(path)
    except FileNotFoundError:
        return _disk(path.parent)
