"""A small file system for the data, which can be filled up; mounting it needs root."""

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sandyard.tools.gameday.errors import GameDayError
from sandyard.tools.gameday.processes import run_once

_MEGABYTES = 128


@dataclass(frozen=True, slots=True)
class SmallDisk:
    path: Path

    def fill(self) -> None:
        """Fill it to the last byte."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                _write_while_it_fits(file.write, size)

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.path / "filler"


def _write_while_it_fits(write: Callable[[bytes], int | None], size: int) -> None:
    try:
        while write(bytes(size)) == size:
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@asynccontextmanager
async def small_disk(path: Path) -> AsyncIterator[SmallDisk]:
    path.mkdir()  # noqa: ASYNC240 - nothing else runs yet
    options = f"size={_MEGABYTES}m,mode=755"
    arguments = ["mount", "-t", "tmpfs", "-o", options, "sandyard-gameday", str(path)]
    code, printed = await run_once(arguments, {})
    if code:
        raise GameDayError(f"disk-full needs root, to mount a small file system: {printed}")
    try:
        yield SmallDisk(path)
    finally:
        await run_once(["umount", "--lazy", str(path)], {})
