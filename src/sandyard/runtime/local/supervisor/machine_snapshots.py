"""Snapshots of one machine: restored when it starts, taken while it runs and at its end."""

import asyncio
from dataclasses import replace
from pathlib import Path

from sandyard.kit.clock import Clock
from sandyard.runtime.errors import MemoryNotKeptError, RestoreFailedError
from sandyard.runtime.local.jail.isolation import Isolation
from sandyard.runtime.local.jail.overlays import ARCHIVED
from sandyard.runtime.local.records.run_folder import Spec
from sandyard.runtime.local.storage import snapshots
from sandyard.runtime.local.supervisor.checkpoints import Checkpoints, Complete
from sandyard.runtime.local.supervisor.machine_process import MachineProcess
from sandyard.runtime.model import Snapshot
from sandyard.runtime.records.disk_reserve import available_bytes


class MachineSnapshots:
    def __init__(self, spec: Spec, isolation: Isolation, workspace: Path, clock: Clock) -> None:
        self._spec = spec
        self._isolation = isolation
        self._workspace = workspace
        self._clock = clock
        self._packing = asyncio.Lock()
        self.checkpoints: Checkpoints | None = None
        """Of a machine whose processes can be kept."""
        self.suspended: tuple[Snapshot, float] | None = None
        """With its processes, which were paused for good at that time."""

    async def restore(self) -> bool:
        """Whether all is restored; the rest has paths that are too long for one call."""
        spec = self._spec
        if spec.restore_from is None:
            return True
        source = Path(spec.restore_from)
        try:
            timeout_sec = spec.prepare_timeout_sec
            is_restored = await snapshots.restore(self._isolation, source, timeout_sec=timeout_sec)
        except snapshots.SnapshotFailedError as error:
            raise RestoreFailedError(f"The snapshot could not be restored: {error}") from error
        if self._isolation.has_root:  # what was mounted there is elsewhere
            (self._workspace / ARCHIVED).rmdir()
        return is_restored

    async def restore_from_inside(self, machine: MachineProcess) -> None:
        try:
            async with (
                asyncio.timeout(self._spec.prepare_timeout_sec),
                snapshots.unpacked(self._isolation, Path(self._spec.restore_from or "")) as archive,
            ):
                agent = machine.root_agent or machine.agent  # may restore the files' owners
                answer = await agent.ask("unpack", {}, (archive,))
        except (TimeoutError, OSError) as error:
            await machine.kill()
            raise RestoreFailedError(f"The snapshot could not be restored: {error}") from error
        if "result" not in answer.message:
            await machine.kill()
            message = answer.message.get("message")
            raise RestoreFailedError(f"The snapshot could not be restored: {message}")

    async def take(
        self, to: Path, *, has_memory: bool = False, reserve_bytes: int | None = None
    ) -> Snapshot:
        """Snapshot all changes, even while it runs, with its processes if wanted, and leave the
        disk its reserve, or that much. One at a time. Raises SnapshotFailedError, OSError."""
        async with self._packing:
            if not has_memory or self.checkpoints is None:
                return await self._pack(to, reserve_bytes)
            async with self.checkpoints.paused(goes_on=True, room_bytes=self._room(to)) as memory:
                return await self._pack(to, reserve_bytes, memory)

    async def _pack(
        self, to: Path, reserve_bytes: int | None = None, memory: Complete | None = None
    ) -> Snapshot:
        return await snapshots.take(
            self._isolation,
            to,
            limit_bytes=self._spec.limits.storage_bytes,
            disk_bytes=self._room(to, reserve_bytes),
            timeout_sec=self._spec.snapshot_timeout_sec,
            complete=memory,
        )

    def _room(self, to: Path, reserve_bytes: int | None = None) -> int:
        left = self._spec.disk_reserve_bytes if reserve_bytes is None else reserve_bytes
        return available_bytes(to.parent) - left

    async def suspend(self) -> None:
        """Pause it for its end, with a snapshot that has its processes; or it goes on. Raises
        MemoryNotKeptError, SnapshotFailedError, OSError."""
        if self.checkpoints is None:
            raise MemoryNotKeptError("Only gVisor can keep them.")
        to = Path(self._spec.snapshot_to)
        async with (
            self._packing,
            self.checkpoints.paused(goes_on=False, room_bytes=self._room(to)) as memory,
        ):
            at = self._clock.now()
            taken = await self._pack(to, memory=memory)
        self.suspended = replace(taken, has_memory=True), at
