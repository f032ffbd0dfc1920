"""File systems for the tests that can be filled and made read-only, by whoever is root."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_DEVICE = "sandyard-test-"
"""How the mounts are named, with the process that made them after it."""


@dataclass(frozen=True, slots=True)
class SmallDisk:
    path: Path

    def fill(self) -> None:
        """Until not a byte has room."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        self._filler.unlink()

    def make_read_only(self) -> None:
        subprocess.run(["mount", "-o", "remount,ro", self.path], check=True)

    @property
    def _filler(self) -> Path:
        return self.path / "filler"


@contextmanager
def small_disk(folder: Path, *, megabytes: int) -> Iterator[SmallDisk]:
    """A file system of this size, mounted below the folder until the block ends."""
    _unmount_abandoned()
    path = folder / "disk"
    path.mkdir()
    device, options = f"{_DEVICE}{os.getpid()}", f"size={megabytes}m,mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, device, path], check=True)
    try:
        yield SmallDisk(path)
    finally:
        _unmount(path)


def unmount_below(folder: Path) -> None:
    """Whatever is mounted in it, by whomever; what lies deepest first."""
    inside = [path for _, path in _mounts() if path.is_relative_to(folder)]
    for path in sorted(inside, key=lambda each: len(each.parts), reverse=True):
        _unmount(path)


def _unmount_abandoned() -> None:
    """Those of runs that were killed, and so could not do it themselves."""
    for device, path in _mounts():
        pid = device.removeprefix(_DEVICE)
        if device.startswith(_DEVICE) and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            _unmount(path)


def _unmount(path: Path) -> None:
    subprocess.run(["umount", "--lazy", path], check=True)


def _mounts() -> list[tuple[str, Path]]:
    """Each device with where it is mounted; the kernel writes a space there as \\040."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [(each[0], Path(each[1].replace("\\040", " "))) for each in map(str.split, lines)]
