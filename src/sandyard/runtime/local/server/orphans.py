"""Ends processes that a killed supervisor left running.

In a jail the kernel has done that; without one the relay has, unless it was killed too. A process
that was just being started may be left in both cases: bubblewrap, killed with its parent, leaves a
child that waits for it forever, and with it the mounts of the supervisor.
"""

from collections.abc import Iterator
from pathlib import Path

from sandyard.runtime.local.host import processes


def kill_orphans(folder: Path) -> None:
    """Kill the processes that work in this folder of a run, and their descendants."""
    for pid in _working_in(folder):
        processes.kill_descendants(pid)
        processes.kill([pid])


def _working_in(folder: Path) -> Iterator[int]:
    if not processes.HAS_PROC:
        return
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                here = (process / "cwd").readlink()
            except OSError:
                continue
            if here.is_relative_to(folder):
                yield int(process.name)
