"""The files of a volume, whether a sandbox has it mounted or not."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.platform.access.principal import Principal
from sandyard.platform.sandboxes.errors import FilesBusyError
from sandyard.platform.sandboxes.node import SandboxNode
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.platform.sessions.service import Sessions
from sandyard.platform.volumes.errors import VolumeReadOnlyError
from sandyard.platform.volumes.model import Holder, Volume, mounted_error
from sandyard.platform.volumes.service import Volumes
from sandyard.runtime.model import Limits, Mount, Program, RunId
from sandyard.runtime.sessions.ports import Session

_LIMITS = Limits(
    cpu=0.5, memory_bytes=256 << 20, processes=32, storage_bytes=16 << 20, max_running_sec=600
)
"""Of the machine for one call."""
_WAIT_SEC = 60
"""How long one call waits for another."""
_PLACE = "/workspace/volume"


class OpenedVolume(NamedTuple):
    session: Session
    """As root, where there is one; what it makes is the user's."""
    path: str
    """The folder that it is mounted at."""


class VolumeContents:
    def __init__(self, volumes: Volumes, sessions: Sessions, node: SandboxNode) -> None:
        self._volumes = volumes
        self._sessions = sessions
        self._node = node
        self._locks = KeyedLocks()

    @asynccontextmanager
    async def open(
        self, volume_id: str, *, by: Principal, writes: bool = False
    ) -> AsyncIterator[OpenedVolume]:
        """In the sandbox that has it mounted; else in a machine that has only it and ends
        afterwards. An account has one such machine at a time, as no quota counts it.

        Raises VolumeNotFoundError, VolumeElsewhereError, FilesBusyError, NotRunningError while a
        sandbox with it starts; of `writes`, VolumeReadOnlyError, VolumeMountedError."""
        volume = await self._volumes.get(by.account_id, volume_id)
        if writes and volume.is_read_only:
            raise VolumeReadOnlyError
        if (holder := await self._holder(volume)) is not None:
            yield await self._within(volume, holder, writes=writes)
            return
        lock = self._locks.of(by.account_id)
        try:
            await asyncio.wait_for(lock.acquire(), _WAIT_SEC)
        except TimeoutError as error:
            raise FilesBusyError from error
        run_id = RunId("files", volume_id, secrets.token_hex(8))
        mount = Mount(volume_id, _PLACE, is_read_only=not writes)
        try:
            self._volumes.require_here(volume)
            await self._node.runtime.check()
            await self._node.runtime.start(run_id, Program(None, mounts=(mount,)), _LIMITS)
            yield self._opened(await self._node.runtime.session(run_id), _PLACE)
        finally:
            try:
                await asyncio.shield(self._end(run_id))
            finally:
                lock.release()

    async def _holder(self, volume: Volume) -> Holder | None:
        """The one that may write, if there is one."""
        use = await self._volumes.use_of(volume.owner_account_id, volume)
        return min(use.holders, key=lambda each: each.is_read_only, default=None)

    async def _within(self, volume: Volume, holder: Holder, *, writes: bool) -> OpenedVolume:
        if writes and holder.is_read_only:
            raise mounted_error(holder)
        account_id = volume.owner_account_id
        sandbox = await self._sessions.get_sandbox(holder.sandbox_id, account_id=account_id)
        paths = [each["path"] for each in sandbox.volumes or () if each["name"] == volume.name]
        return self._opened(await self._sessions.into(sandbox), paths[0])

    @staticmethod
    def _opened(session: Session, path: str) -> OpenedVolume:
        return OpenedVolume(session.as_root(for_user=True) or session, path)

    async def _end(self, run_id: RunId) -> None:
        runtime = self._node.runtime
        if await runtime.find(run_id) is not None:
            ended = await runtime.stop(run_id)
            with retried_later("files", run_id.id):
                if ended.snapshot is not None:
                    await runtime.delete_snapshot(ended.snapshot.id)
                await runtime.forget(run_id)
