"""`python -m sandyard.tools.gameday.skewed FILE ARGUMENT…`: the command with a clock that is off by
the seconds in a file, which may change while it runs. The machine's own clock is unchanged."""

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

_SECONDS = struct.Struct("d")


class ClockOffset:
    """How many seconds a clock is ahead, shared between processes in a file of eight bytes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        if not file.exists():
            file.write_bytes(_SECONDS.pack(0.0))
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), _SECONDS.size)

    def set(self, seconds: float) -> None:
        _SECONDS.pack_into(self._shared, 0, seconds)

    def get(self) -> float:
        seconds: float = _SECONDS.unpack_from(self._shared)[0]
        return seconds


def main(file: str, *arguments: str) -> None:
    """All uses of the time in the process are skewed alike: rows, leases, jobs and log lines."""
    offset, right = ClockOffset(Path(file)), time.time
    time.time = lambda: right() + offset.get()
    sys.argv = ["sandyard", *arguments]
    runpy.run_module("sandyard", run_name="__main__")  # only now: some modules keep `time.time`


if __name__ == "__main__":
    main(*sys.argv[1:])
