"""Files of sandboxes, stored for others to start with: templates of builds and snapshots."""

import uuid
from collections.abc import Iterable

from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.model import FieldChanges
from sandyard.platform.quotas.storage import StorageQuota
from sandyard.platform.sandboxes.archives.usage import StorageUsage
from sandyard.platform.sandboxes.errors import QuotaExceededError
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.node import SandboxNode, run_id_of
from sandyard.platform.templates.model import Template


class SandboxArchives:
    def __init__(
        self, node: SandboxNode, usage: StorageUsage[Template], storage: StorageQuota
    ) -> None:
        self._node = node
        self._runtime = node.runtime
        self._usage = usage
        self._storage = storage

    async def save(
        self, sandbox: Sandbox, archive_id: str | None = None, *, has_memory: bool = False
    ) -> str:
        """Archive its current files, and its processes if `has_memory`, while it keeps running;
        returns the archive's id. An archive that is in no template within the hour is removed.
        NotRunningError, MemoryNotKeptError, SandboxElsewhereError, QuotaExceededError if the
        account may not store all that the sandbox may.
        """
        self._node.require_here(sandbox)
        await self._storage.require(
            sandbox.owner_account_id, self._node.storage_bytes, error=QuotaExceededError
        )
        archive_id = archive_id or str(uuid.uuid4())
        await self._runtime.save_archive(run_id_of(sandbox), archive_id, has_memory=has_memory)
        return archive_id

    async def counted(
        self, archive_ids: Iterable[str], *, by: Principal, template_id: str | None = None
    ) -> FieldChanges:
        """The fields of a template that has these archives from now on. Its previous ones are first
        added to its owner's usage."""
        cause = self._node.cause(by.actor)
        if template_id is not None:
            await self._usage.count(template_id, until=cause.at, cause=cause)
        sizes = {each.id: each.size_bytes for each in await self._runtime.list_archives()}
        wanted = set(archive_ids)
        if wanted - sizes.keys():  # they are on another node, which has counted them
            return {}
        size = sum(sizes[each] for each in wanted)
        return {"archive_bytes": size, "storage_counted_until": cause.at if wanted else None}

    async def drop(self, archive_ids: Iterable[str]) -> None:
        """Remove those that nothing references."""
        wanted = set(archive_ids)
        for archive_id in wanted - await self._node.store.referenced_archives(sorted(wanted)):
            await self._runtime.delete_archive(archive_id)
