"""The files of a volume, whether a sandbox has it mounted or not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from sandyard.platform.access.principal import Principal
from sandyard.platform.sandboxes.runs.call_machines import MOST_SEC, CallMachines
from sandyard.platform.sessions.service import Sessions
from sandyard.platform.volumes.errors import VolumeReadOnlyError
from sandyard.platform.volumes.model import Holder, Volume, mounted_error
from sandyard.platform.volumes.service import Volumes
from sandyard.runtime.model import Limits, Mount, Program
from sandyard.runtime.sessions.ports import Session

_LIMITS = Limits(
    cpu=0.5, memory_bytes=256 << 20, processes=32, storage_bytes=16 << 20, max_running_sec=MOST_SEC
)
"""Of the machine for one call."""
_PLACE = "/workspace/volume"


class OpenedVolume(NamedTuple):
    session: Session
    """As root, where there is one; what it makes is the user's."""
    path: str
    """The folder that it is mounted at."""


@dataclass(frozen=True, slots=True)
class VolumeContents:
    volumes: Volumes
    sessions: Sessions
    machines: CallMachines

    @asynccontextmanager
    async def open(
        self, volume_id: str, *, by: Principal, writes: bool = False
    ) -> AsyncIterator[OpenedVolume]:
        """In the sandbox that has it mounted; else in a machine that has only it and ends
        afterwards.

        Raises VolumeNotFoundError, VolumeElsewhereError, FilesBusyError, NotRunningError while a
        sandbox with it starts; of `writes`, VolumeReadOnlyError, VolumeMountedError."""
        volume = await self.volumes.get(by.account_id, volume_id)
        if writes and volume.is_read_only:
            raise VolumeReadOnlyError
        if (holder := await self._holder(volume)) is not None:
            yield await self._within(volume, holder, writes=writes)
            return
        program = Program(None, mounts=(Mount(volume_id, _PLACE, is_read_only=not writes),))
        async with self.machines.turn(by.account_id):
            self.volumes.require_here(volume)
            async with self.machines.start(volume_id, program, _LIMITS) as session:
                yield self._opened(session, _PLACE)

    async def _holder(self, volume: Volume) -> Holder | None:
        """The one that may write, if there is one."""
        use = await self.volumes.use_of(volume.owner_account_id, volume)
        return min(use.holders, key=lambda each: each.is_read_only, default=None)

    async def _within(self, volume: Volume, holder: Holder, *, writes: bool) -> OpenedVolume:
        if writes and holder.is_read_only:
            raise mounted_error(holder)
        account_id = volume.owner_account_id
        sandbox = await self.sessions.get_sandbox(holder.sandbox_id, account_id=account_id)
        paths = [each["path"] for each in sandbox.volumes or () if each["name"] == volume.name]
        return self._opened(await self.sessions.into(sandbox), paths[0])

    @staticmethod
    def _opened(session: Session, path: str) -> OpenedVolume:
        return OpenedVolume(session.as_root(for_user=True) or session, path)
