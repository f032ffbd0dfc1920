"""The use cases of volumes. Their files are made before their rows, and deleted after them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.clock import utc_time
from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.kit.errors import ConflictError, InvalidError, SandyardError
from sandyard.kit.idempotency import new_id
from sandyard.kit.node import require_here
from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.apply import OwnedStore, apply_all
from sandyard.platform.entities.service import OwnedEntities
from sandyard.platform.quotas.model import CountQuota, ResourceKind
from sandyard.platform.quotas.storage import StorageQuota
from sandyard.platform.sandboxes.errors import QuotaExceededError
from sandyard.platform.sandboxes.model import require_writable
from sandyard.platform.sandboxes.node import SandboxNode
from sandyard.platform.volumes import model
from sandyard.platform.volumes.errors import (
    VolumeElsewhereError,
    VolumeNameTakenError,
    VolumeNotFoundError,
)
from sandyard.platform.volumes.model import NewVolume, Volume, VolumeUse
from sandyard.runtime.errors import VolumesUnsupportedError
from sandyard.runtime.ports import VolumeFiles

_UNREFERENCED_FOR = timedelta(hours=1)
"""Files are made before their volume, and a copy takes long."""


class VolumeStore(OwnedStore[Volume], Protocol):
    async def of_node(self, node: str) -> Sequence[Volume]:
        """Those whose files the node has."""


class Volumes(OwnedEntities[Volume, VolumeStore]):
    id_prefix = "vol"
    not_found = VolumeNotFoundError

    def __init__(
        self,
        store: VolumeStore,
        files: VolumeFiles | None,
        node: SandboxNode,
        storage: StorageQuota,
        *,
        per_account: int,
    ) -> None:
        """`files` is None if sandboxes have no volumes where they run."""
        super().__init__(store, clock=node.clock)
        self._files = files
        self._node = node
        self._storage = storage
        self._per_account = per_account
        self._of_account = KeyedLocks()

    async def create(self, principal: Principal, new: NewVolume) -> Volume:
        """VolumesUnsupportedError, VolumeNameTakenError, VolumesLimitError, QuotaExceededError; of
        a copy VolumeMountedError while a sandbox may write to the other."""
        files, account_id = self._require_files(), principal.account_id
        if new.copy_of is not None:
            source = await self.get(account_id, new.copy_of)
            self.require_here(source)
            for holder in (await self.use_of(account_id, source)).holders:
                if not holder.is_read_only:
                    raise model.mounted_error(holder)
            new = replace(new, size_bytes=source.size_bytes)
        quota = CountQuota(ResourceKind.VOLUMES, account_id, self._per_account)
        cause, volume_id = self._cause(principal), new_id(self.id_prefix)

        async def decide(volume_id: str) -> Transition[Volume]:
            project = None
            if new.project_id is not None:
                found = await self._node.store.find_project(account_id, new.project_id)
                project = require_writable(found)
            made = model.create_volume(
                new,
                volume_id=volume_id,
                account_id=account_id,
                node=self._node.name,
                quota=await self._store.read_fact(quota),
                project=project,
                cause=cause,
            )
            if (await self._store.read_fact(VolumeUse(account_id, (new.name,)))).volumes:
                raise VolumeNameTakenError
            await self._storage.require(account_id, new.size_bytes, error=QuotaExceededError)
            await files.create(volume_id, new.size_bytes, copy_of=new.copy_of)
            return made

        async with self._of_account.of(account_id):  # the next one counts this one
            try:
                return await self._create(principal, decide, volume_id)
            except (ConflictError, InvalidError):  # not if it is unknown whether the row exists
                await self._delete_files(volume_id)
                raise

    async def resize(self, principal: Principal, volume_id: str, size_bytes: int) -> Volume:
        """QuotaExceededError, VolumeTooSmallError, VolumeMountedError."""
        files, account_id = self._require_files(), principal.account_id
        cause = self._cause(principal)

        async def decide() -> Sequence[Transition[Any]]:
            volume = await self.get(account_id, volume_id)
            self.require_here(volume)
            resized = model.resize_volume(
                volume,
                await self.use_of(account_id, volume),
                size_bytes=size_bytes,
                usage_id=self._node.ids.usage(),
                prices=self._node.prices,
                cause=cause,
            )
            grown = size_bytes - volume.size_bytes
            if grown > 0:
                await self._storage.require(account_id, grown, error=QuotaExceededError)
            await files.resize(volume_id, size_bytes)
            return resized

        async with self._of_account.of(account_id):
            resized: Transition[Volume] = (await apply_all(self._store, decide))[0]
        return resized.result

    async def delete(self, principal: Principal, volume_id: str) -> None:
        """VolumeMountedError."""
        cause = self._cause(principal)

        async def decide() -> Transition[Volume]:
            volume = await self.get(principal.account_id, volume_id)
            self.require_here(volume)
            use = await self.use_of(principal.account_id, volume)
            return model.delete_volume(volume, use, cause=cause)

        await self._apply(decide)
        await self._delete_files(volume_id)

    async def use_of(self, account_id: str, *volumes: Volume) -> VolumeUse:
        """Who has them mounted."""
        names = tuple(each.name for each in volumes)
        return await self._store.read_fact(VolumeUse(account_id, names))

    async def _delete_files(self, volume_id: str) -> None:
        """What can't be deleted now is left to the job."""
        if self._files is not None:
            with suppress(SandyardError):
                await self._files.delete(volume_id)

    def _require_files(self) -> VolumeFiles:
        if self._files is None:
            raise VolumesUnsupportedError
        return self._files

    def require_here(self, volume: Volume) -> None:
        require_here(volume.node, node=self._node.name, error=VolumeElsewhereError)


@dataclass(slots=True)
class VolumesReport:
    removed: int = 0


async def clean_volumes(store: VolumeStore, files: VolumeFiles, node: SandboxNode) -> VolumesReport:
    """Remove the files of deleted volumes, and what is left of interrupted calls."""
    report, before = VolumesReport(), node.now() - _UNREFERENCED_FOR
    written_at = await files.written_at()  # before the rows: what is needed is named then
    named = {each.volume_id for each in await store.of_node(node.name)}
    for volume_id, at in written_at.items():
        if volume_id not in named and utc_time(at) < before:
            with suppress(SandyardError):
                await files.delete(volume_id)
                report.removed += 1
    return report
