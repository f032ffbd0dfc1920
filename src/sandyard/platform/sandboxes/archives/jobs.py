"""The job that removes expired and unreferenced snapshots and archives."""

import logging
from dataclasses import dataclass
from datetime import timedelta

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import utc_time
from sandyard.kit.errors import UnavailableError
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.node import SandboxNode
from sandyard.platform.sandboxes.runs.lost_model import is_needed
from sandyard.platform.sandboxes.runs.model import Transitions, expire_snapshot, warn_of_expiry
from sandyard.runtime.errors import RecordBrokenError
from sandyard.runtime.model import Ended
from sandyard.runtime.store.layers import NoLayers

logger = logging.getLogger(__name__)

SNAPSHOTS = actor("job", "snapshots")

_PAGE = 200
_UNREFERENCED_FOR = timedelta(hours=1)
"""How old an unreferenced snapshot must be to be removed: a newer one may be about to be recorded.
"""


@dataclass(slots=True)
class SnapshotReport:
    expired: int = 0
    warned: int = 0
    unreferenced_removed: int = 0
    objects_deleted: int = 0
    """In the store of files, after nothing referred to them for a day."""


class ExpireSnapshots:
    """Removes expired snapshots, and warns their owners before; then what is left in the store."""

    def __init__(self, node: SandboxNode, layers: NoLayers, *, warn_before: timedelta) -> None:
        self._layers = layers
        self._node = node
        self._store, self._runtime = node.store, node.runtime
        self._warn_before = warn_before

    async def run(self) -> SnapshotReport:
        report = SnapshotReport()
        cause = self._node.cause(SNAPSHOTS)
        until, after = cause.at + self._warn_before, ""
        while page := await self._store.with_snapshot_until(until, limit=_PAGE, after=after):
            after = page[-1].sandbox_id
            for sandbox in page:
                cause = self._node.cause(SNAPSHOTS)
                report.warned += await self._warn(sandbox, cause)
                report.expired += await self._expire(sandbox, cause)
        report.unreferenced_removed = await self._remove_unreferenced(cause)
        report.unreferenced_removed += await self._remove_archives(cause)
        report.objects_deleted = await self._layers.collect(now=cause.at.timestamp())
        return report

    async def _warn(self, sandbox: Sandbox, cause: Cause) -> bool:
        accounting = self._node.accounting(cause)
        transitions = warn_of_expiry(sandbox, warn_before=self._warn_before, accounting=accounting)
        return await self._apply(transitions)

    async def _expire(self, sandbox: Sandbox, cause: Cause) -> bool:
        snapshot_id = sandbox.latest_snapshot_id
        transitions = expire_snapshot(sandbox, self._node.accounting(cause))
        if snapshot_id is None or not await self._apply(transitions):
            return False
        await self._runtime.delete_snapshot(snapshot_id)
        return True

    async def _apply(self, transitions: Transitions | None) -> bool:
        """An entity that has changed since it was read is left to the next run."""
        return transitions is not None and await self._store.apply(*transitions)

    async def _remove_archives(self, cause: Cause) -> int:
        """Archives of deleted templates and failed builds."""
        old = [
            archive.id
            for archive in await self._runtime.list_archives()
            if cause.at - utc_time(archive.created_at) > _UNREFERENCED_FOR
        ]
        unused = set(old) - await self._store.referenced_archives(old)
        for archive_id in unused:
            await self._runtime.delete_archive(archive_id)
        return len(unused)

    async def _remove_unreferenced(self, cause: Cause) -> int:
        old = [
            snapshot.id
            for snapshot in await self._runtime.list_snapshots()
            if cause.at - utc_time(snapshot.created_at) > _UNREFERENCED_FOR
        ]
        try:
            unused = set(old) - await self._unrecorded(cause)
        except RecordBrokenError as error:
            logger.warning("orphaned snapshots are kept", extra=_extra(error))
            return 0
        removed = 0
        for snapshot_id in unused - await self._store.referenced_snapshots(old):
            try:
                await self._runtime.delete_snapshot(snapshot_id)
            except UnavailableError as error:  # the others must not wait for it
                logger.warning("an orphaned snapshot could not be removed", extra=_extra(error))
            else:
                removed += 1
        return removed

    async def _unrecorded(self, cause: Cause) -> set[str]:
        """Snapshots of last runs, which are about to be recorded if they are not yet. Raises
        RecordBrokenError: any snapshot may be that run's."""
        found: set[str] = set()
        for run_id in await self._runtime.run_ids("sandbox"):
            run = await self._runtime.refresh(run_id)
            if not isinstance(run, Ended) or run.snapshot is None:
                continue
            sandbox = await self._store.find(run.run_id.id)
            is_fresh = cause.at - utc_time(run.ended_at) < self._node.snapshot_retention
            if is_fresh and sandbox is not None and is_needed(run, sandbox):
                found.add(run.snapshot.id)
        return found


def _extra(error: UnavailableError) -> dict[str, str | None]:
    return {"action": "snapshots", "reason": error.reason}
