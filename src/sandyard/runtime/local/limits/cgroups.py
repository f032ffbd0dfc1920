"""Limits held by Linux's control groups (version 2), below a root that the operator names.

Nothing outside that root is read or written. A group is made for each machine, and removed with it.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from sandyard.runtime.model import Limits

CONTROLLERS = ("cpu", "memory", "pids")
_PERIOD_US = 100_000
_REMOVED_SEC = 5
_POLL_SEC = 0.01


def prepare_root(root: Path) -> None:
    """Enable limits for groups below the root. Raises OSError that says what is missing."""
    offered = (root / "cgroup.controllers").read_text().split()
    if missing := [name for name in CONTROLLERS if name not in offered]:
        raise OSError(f"{root} offers no {' and no '.join(missing)} controller")
    enabled = (root / "cgroup.subtree_control").read_text().split()
    if wanted := [name for name in CONTROLLERS if name not in enabled]:
        _write(root / "cgroup.subtree_control", " ".join(f"+{name}" for name in wanted))


class Cgroup:
    """The group of one machine, found again by the machine's folder."""

    def __init__(
        self, root: Path, folder: Path, *, remove: Callable[[Path], None] = os.rmdir
    ) -> None:
        import hashlib  # takes a while, and most machines have no control group

        digest = hashlib.sha256(os.fsencode(folder)).hexdigest()
        self.path = root / f"sandyard-{digest[:16]}"
        self._remove = remove

    def create(self, limits: Limits, *, processes_of_ours: int) -> None:
        """Raises OSError: a limit that can't be set would not be enforced."""
        self.path.mkdir(exist_ok=True)
        _write(self.path / "memory.max", str(limits.memory_bytes))
        _write(self.path / "memory.oom.group", "1")
        if (swap := self.path / "memory.swap.max").exists():
            _write(swap, "0")
        _write(self.path / "pids.max", str(limits.processes + processes_of_ours))
        _write(self.path / "cpu.max", f"{round(limits.cpu * _PERIOD_US)} {_PERIOD_US}")

    def add(self, pid: int) -> None:
        """Add the process and everything it starts from now on."""
        _write(self.path / "cgroup.procs", str(pid))

    def memory_bytes(self) -> int:
        return int((self.path / "memory.current").read_text())

    def was_out_of_memory(self) -> bool:
        """Whether the kernel has OOM-killed it."""
        return self._flat("memory.events").get("oom_kill", 0) > 0

    def cpu_seconds(self) -> float:
        return self._flat("cpu.stat").get("usage_usec", 0) / 1e6

    def processes(self) -> int:
        return int((self.path / "pids.current").read_text())

    def remove(self) -> None:
        """Kill the processes left in it and remove it. Raises OSError if that fails."""
        until = time.monotonic() + _REMOVED_SEC
        while self.path.exists():
            try:
                _write(self.path / "cgroup.kill", "1")
                self._remove(self.path)
            except FileNotFoundError:
                return
            except OSError:  # killed processes are not gone yet
                if time.monotonic() > until:
                    raise
                time.sleep(_POLL_SEC)

    def _flat(self, name: str) -> dict[str, int]:
        lines = (self.path / name).read_text().splitlines()
        return {key: int(value) for key, value in (line.split() for line in lines)}


def _write(path: Path, value: str) -> None:
    """In one call, as the kernel requires."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)
