"""Ends what a killed supervisor left running.

In a jail the kernel has done that; without one the relay has, unless it was killed too.
"""

from collections.abc import Iterator
from pathlib import Path

from sandyard.runtime.local import processes


def kill_orphans(workspace: Path) -> None:
    """Kill the processes that work in this workspace, and those below them."""
    for pid in _working_in(workspace):
        processes.kill_descendants(pid)
        processes.kill([pid])


def _working_in(workspace: Path) -> Iterator[int]:
    if not processes.HAS_PROC:
        return
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                here = (process / "cwd").readlink()
            except OSError:
                continue
            if here.is_relative_to(workspace):
                yield int(process.name)
