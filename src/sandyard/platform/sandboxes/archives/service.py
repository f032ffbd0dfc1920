"""Files of sandboxes, stored for others to start with: templates of builds and snapshots."""

import uuid
from collections.abc import Iterable

from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock
from sandyard.kit.node import require_here
from sandyard.platform.access.principal import Principal
from sandyard.platform.sandboxes.archives.usage import ArchiveUsage
from sandyard.platform.sandboxes.errors import SandboxElsewhereError
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.ports import SandboxStore
from sandyard.platform.sandboxes.runs.recorder import run_id_of
from sandyard.platform.templates.model import TemplateChanges
from sandyard.runtime.ports import Runtime


class SandboxArchives:
    def __init__(
        self, store: SandboxStore, runtime: Runtime, usage: ArchiveUsage, *, node: str, clock: Clock
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._usage = usage
        self._node = node
        self._clock = clock

    async def save(self, sandbox: Sandbox, archive_id: str | None = None) -> str:
        """Archive its current files, while it keeps running; returns the archive's id. An archive
        that is in no template within the hour is removed. NotRunningError, SandboxElsewhereError.
        """
        require_here(sandbox.node, node=self._node, error=SandboxElsewhereError)
        archive_id = archive_id or str(uuid.uuid4())
        await self._runtime.save_archive(run_id_of(sandbox), archive_id)
        return archive_id

    async def counted(
        self, archive_ids: Iterable[str], *, by: Principal, template_id: str | None = None
    ) -> TemplateChanges:
        """The fields of a template that has these archives from now on. Its previous ones are first
        added to its owner's usage."""
        cause = Cause.by(by.actor, self._clock)
        if template_id is not None:
            await self._usage.count(template_id, until=cause.at, cause=cause)
        sizes = {each.id: each.size_bytes for each in await self._runtime.list_archives()}
        given = set(archive_ids)
        if given - sizes.keys():  # they are on another node, which has counted them
            return {}
        size = sum(sizes[each] for each in given)
        return {"archive_bytes": size, "storage_counted_until": cause.at if given else None}

    async def drop(self, archive_ids: Iterable[str]) -> None:
        """Remove those that nothing references."""
        given = set(archive_ids)
        for archive_id in given - await self._store.referenced_archives(sorted(given)):
            await self._runtime.delete_archive(archive_id)
