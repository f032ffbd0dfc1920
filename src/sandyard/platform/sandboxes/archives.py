"""Files of sandboxes, kept for others to begin with: templates of builds and snapshots."""

import uuid
from collections.abc import Iterable

from sandyard.kit.node import require_here
from sandyard.platform.sandboxes.errors import SandboxElsewhereError
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.ports import SandboxStore
from sandyard.platform.sandboxes.runs import run_id_of
from sandyard.runtime.ports import Runtime


class SandboxArchives:
    def __init__(self, store: SandboxStore, runtime: Runtime, *, node: str) -> None:
        self._store = store
        self._runtime = runtime
        self._node = node

    async def save(self, sandbox: Sandbox, archive_id: str | None = None) -> str:
        """The id of an archive of its files as they are now; it goes on. Whoever names it in no
        template within the hour loses it. NotRunningError, SandboxElsewhereError."""
        require_here(sandbox.node, node=self._node, error=SandboxElsewhereError)
        archive_id = archive_id or str(uuid.uuid4())
        await self._runtime.save_archive(run_id_of(sandbox), archive_id)
        return archive_id

    async def drop(self, archive_ids: Iterable[str]) -> None:
        """Remove those that nothing needs any more."""
        given = set(archive_ids)
        for archive_id in given - await self._store.referenced_archives(sorted(given)):
            await self._runtime.delete_archive(archive_id)
