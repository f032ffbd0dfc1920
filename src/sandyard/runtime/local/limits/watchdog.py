"""Enforces the limits that the kernel does not apply to a whole process tree."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

from sandyard.kit.clock import Clock
from sandyard.runtime.local.host import processes
from sandyard.runtime.local.jail.isolation import BoundVolume
from sandyard.runtime.local.jail.spawn import first_of
from sandyard.runtime.local.limits.cgroups import Cgroup
from sandyard.runtime.local.limits.memory import Memory, folder_bytes, memory, memory_folder
from sandyard.runtime.local.limits.storage_use import unlinked_bytes, used_bytes
from sandyard.runtime.local.records.run_folder import Spec
from sandyard.runtime.local.storage.volumes import Volume
from sandyard.runtime.model import EndReason
from sandyard.runtime.records.disk_reserve import available_bytes

_INTERVAL_SEC = 0.25
_NEAR_LIMIT_SEC = 0.05
_ASLEEP_SEC = 1.0
_STORAGE_SEC = 1.0
_BLIND_SEC = 10.0
_MEMORY_FOLDERS = ("tmp", "dev/shm")
_FASTEST_WRITES = 4 << 30
"""Bytes per second, of all machines together."""
_RARELY_SEC = 5.0
_SMALL_GROWTH = 16 << 20
"""What each machine may still write into the reserve."""

_Check = Callable[[], Awaitable[tuple[EndReason | None, float]]]
"""Returns the exceeded limit, if any, and the pause before the next check."""


class Watchdog:
    """Watches the descendants of this process; returns which limit was exceeded."""

    def __init__(
        self, spec: Spec, files: Path, volume: Volume, cgroup: Cgroup | None, clock: Clock
    ) -> None:
        self._spec = spec
        self._limits = spec.limits
        self._files = files
        self._folder = files.parent
        self._volume = volume
        self._cgroup = cgroup
        self._clock = clock
        self.spared: set[int] = set()
        """Descendants of this process that are not the machine's."""
        self.volumes: Collection[BoundVolume] = ()
        """Those that it has beside its own files."""
        self._in_volumes = 0
        self._stored = 0
        self._stored_before_reserve = 0
        self._folders: list[int] = []
        self._pause_sec = _INTERVAL_SEC
        self._idle_since: tuple[list[int], float] | None = None
        self._counted: Callable[[], int] | None = None

    def watch_kernel(self, memory_bytes: Callable[[], int]) -> None:
        """Count the memory of a machine with its own kernel by this alone."""
        self._counted = memory_bytes

    def watch_folders(self, pid_inside: int) -> None:
        """Also count the machine's in-memory folders; `pid_inside` is a process of the machine."""
        if self._spec.isolation == "bubblewrap":
            found = (memory_folder(pid_inside, name) for name in _MEMORY_FOLDERS)
            self._folders = [folder for folder in found if folder is not None]

    async def run(self) -> EndReason:
        """Return when a limit is exceeded, or could not be checked for a while."""
        checks = (self._over_storage, self._over_reserve, self._over_memory)
        watches = [asyncio.ensure_future(self._watch(check)) for check in checks]
        try:
            await first_of(*watches)
            return next(each.result() for each in watches if each.done())
        finally:
            for each in watches:
                each.cancel()

    def free_bytes(self) -> int:
        """What may still be stored, as of the last check."""
        if self._volume.is_bounded:
            found = os.statvfs(self._files)
            return found.f_bavail * found.f_frsize
        return max(0, self._limits.storage_bytes - self._stored)

    def sample(self) -> dict[str, Any]:
        """The current resource use of the processes."""
        pids = self._pids()
        group = self._cgroup
        return {
            "at": self._clock.now(),
            "cpu_seconds": group.cpu_seconds() if group else processes.cpu_seconds(pids),
            "memory_bytes": group.memory_bytes() if group else self._used_memory(pids),
            "storage_bytes": self._visible_bytes(),
            "processes": len(pids),
        }

    def _visible_bytes(self) -> int:
        return self._bounded_bytes() if self._volume.is_bounded else used_bytes(self._files)

    def _bounded_bytes(self) -> int:
        """What the volume stores; nothing before it is mounted."""
        if self._files.stat().st_dev == self._folder.stat().st_dev:
            return 0
        return _used_bytes(self._files)

    async def _watch(self, check: "_Check") -> EndReason:
        """Check repeatedly. A failed check is not taken for an empty result."""
        seen_at = time.monotonic()
        while True:
            try:
                reason, pause_sec = await check()
                seen_at = time.monotonic()
            except OSError:
                reason, pause_sec = None, _NEAR_LIMIT_SEC
                if time.monotonic() - seen_at > _BLIND_SEC:
                    return "killed"
            if reason is not None:
                return reason
            await asyncio.sleep(pause_sec)

    async def _over_memory(self) -> tuple[EndReason | None, float]:
        if self._cgroup is not None:
            return ("out_of_memory" if self._cgroup.was_out_of_memory() else None), _INTERVAL_SEC
        limit = self._limits.memory_bytes
        if self._spec.isolation == "gvisor":
            is_over = self._counted is not None and self._counted() > limit
            return ("out_of_memory" if is_over else None), _NEAR_LIMIT_SEC
        pids = self._pids()
        worked_sec = processes.cpu_seconds(pids)
        if (pids, worked_sec) == self._idle_since:  # sleeping processes allocate nothing
            self._pause_sec = min(2 * self._pause_sec, _ASLEEP_SEC)
            return None, self._pause_sec
        self._pause_sec = _INTERVAL_SEC
        # The quick sum is never too small; it is refined only near the limit.
        bound = processes.resident_bytes(pids) + self._in_folders()
        if bound > limit:
            bound = (await asyncio.to_thread(self._memory, pids)).held
        if bound > limit:
            # A process that has just forked may count twice for a moment.
            bound = (await asyncio.to_thread(self._memory, pids)).held
        is_near = bound > limit // 3
        self._idle_since = None if is_near else (pids, worked_sec)
        pause_sec = _NEAR_LIMIT_SEC if is_near else _INTERVAL_SEC
        return ("out_of_memory" if bound > limit else None), pause_sec

    def _pids(self) -> list[int]:
        return [pid for pid in processes.descendants(os.getpid()) if pid not in self.spared]

    def _used_memory(self, pids: list[int]) -> int:
        return self._memory(pids).total if self._counted is None else self._counted()

    def _memory(self, pids: list[int]) -> Memory:
        return memory(pids, in_folders=self._in_folders())

    def _in_folders(self) -> int:
        return sum(map(folder_bytes, self._folders))

    async def _over_storage(self) -> tuple[EndReason | None, float]:
        if self._volume.is_bounded:
            return None, 3600.0
        begun = time.monotonic()
        self._stored = await asyncio.to_thread(self._stored_bytes)
        is_over = self._stored > self._limits.storage_bytes
        is_over |= await asyncio.to_thread(self._count_volumes)
        # A large workspace takes long to measure: spend at most a tenth of the time on that.
        pause_sec = max(_STORAGE_SEC, 10 * (time.monotonic() - begun))
        return ("out_of_storage" if is_over else None), pause_sec

    async def _over_reserve(self) -> tuple[EndReason | None, float]:
        """Whether its files have grown since the disk was used up to its reserve. The disk is
        looked at more often the less is left, so that the machines can't use up the reserve in
        between."""
        if not self._volume.is_on_disk:
            return None, 3600.0
        left = available_bytes(self._folder) - self._spec.disk_reserve_bytes
        stored = self._bounded_bytes() if self._volume.is_bounded else self._stored
        stored += self._in_volumes + sum(_used_bytes(each.source) for each in self._writable())
        if left > 0:
            self._stored_before_reserve = stored
            return None, min(_RARELY_SEC, max(_INTERVAL_SEC, left / _FASTEST_WRITES))
        is_growing = stored - self._stored_before_reserve > _SMALL_GROWTH
        return ("disk_full" if is_growing else None), _INTERVAL_SEC

    def _count_volumes(self) -> bool:
        """Whether one has more than it may."""
        sizes = {
            each: used_bytes(each.source, give_up_above=each.limit_bytes)
            for each in self._writable(is_counted=True)
        }
        self._in_volumes = sum(sizes.values())
        return any(size > each.limit_bytes for each, size in sizes.items())

    def _writable(self, *, is_counted: bool = False) -> list[BoundVolume]:
        return [each for each in self.volumes if each.writes and each.is_counted == is_counted]

    def _stored_bytes(self) -> int:
        pids = self._pids()
        linked_bytes = used_bytes(self._files, give_up_above=self._limits.storage_bytes)
        return linked_bytes + unlinked_bytes(self._files, pids)


def _used_bytes(mounted: Path) -> int:
    found = os.statvfs(mounted)
    return (found.f_blocks - found.f_bfree) * found.f_frsize
