"""Operators' changes of many sandboxes at once."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from sandyard.broker.pool.action_model import (
    AUTO_DELETE_STALE,
    BULK_DELETE,
    BULK_RESTORE,
    Action,
    BulkFilter,
    decide_action,
    decide_bulk_delete,
)
from sandyard.broker.pool.lease_model import decide_hold
from sandyard.broker.pool.model import OPERATOR, Sandbox, StaleReason, Status
from sandyard.broker.pool.ports import PoolStore, SandboxFilter
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.clock import Clock

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 1000
_PAGE = 100
_MOST_READ = 10_000


class Decide(Protocol):
    def __call__(self, row: Sandbox, cause: Cause) -> Transition[Sandbox]: ...


@dataclass(slots=True)
class BulkReport:
    dry_run: bool
    matched: int = 0
    changed: int = 0
    skipped: int = 0
    sandbox_ids: list[str] = field(default_factory=list)
    not_found: list[str] = field(default_factory=list)
    """The requested names that no sandbox has that could be changed."""
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class BulkLimits:
    """How many rows one call changes, from which cursor on; a dry run only reports them."""

    limit: int = MOST_AT_ONCE
    cursor: str | None = None
    dry_run: bool = False


class BulkChanges:
    def __init__(self, store: PoolStore, *, clock: Clock, assigner: SandboxAssigner) -> None:
        self._store = store
        self._assigner = assigner
        self._clock = clock

    async def delete(
        self,
        *,
        status: Status,
        name_prefix: str,
        track: str | None,
        older_than_hours: float,
        limits: BulkLimits,
        by: str = OPERATOR,
    ) -> BulkReport:
        """Send matching sandboxes that have not changed for this long to deletion. A row that
        changes meanwhile is skipped and counted as such."""
        since = self._hours_ago(older_than_hours)
        wanted = BulkFilter(status, name_prefix, track, since)
        return await self._run(wanted, limits, decide_bulk_delete, BULK_DELETE, by)

    async def change(
        self,
        wanted: BulkFilter,
        *,
        limits: BulkLimits,
        reason: str,
        hold_until: int | None = None,
        by: str = OPERATOR,
    ) -> BulkReport:
        def decide(row: Sandbox, cause: Cause) -> Transition[Sandbox]:
            if hold_until is None:
                return decide_action(row, Action.QUARANTINE, cause)
            return decide_hold(row, hold_until, cause)

        return await self._run(wanted, limits, decide, reason, by)

    async def restore(
        self, wanted: BulkFilter, *, limits: BulkLimits, by: str = OPERATOR
    ) -> BulkReport:
        """Restore matching sandboxes that no track has had; those that the provider does not list
        are left to `sync`."""

        def decide(row: Sandbox, cause: Cause) -> Transition[Sandbox]:
            return decide_action(row, Action.RESTORE, cause)

        reason = StaleReason.QUARANTINED if wanted.status is Status.STALE else None
        wanted = replace(wanted, action=Action.RESTORE, stale_reason=reason)
        return await self._run(wanted, limits, decide, BULK_RESTORE, by)

    async def delete_stale(
        self, *, grace_period_hours: float, limits: BulkLimits, by: str = OPERATOR
    ) -> BulkReport:
        """Send sandboxes to deletion that the provider has not listed for this long. Quarantined
        ones are left to an operator."""
        since = self._hours_ago(grace_period_hours)
        wanted = BulkFilter(Status.STALE, unchanged_since=since, stale_reason=StaleReason.MISSING)
        return await self._run(wanted, limits, decide_bulk_delete, AUTO_DELETE_STALE, by)

    async def _run(
        self, wanted: BulkFilter, limits: BulkLimits, decide: Decide, reason: str, by: str
    ) -> BulkReport:
        """Page by page, within the limits. Changed rows no longer match the listing, so the cursor
        stays valid."""
        report = BulkReport(limits.dry_run, next_cursor=limits.cursor)
        cause = Cause.by(by, self._clock, reason=reason)
        for prefix in wanted.prefixes:
            matched = report.matched
            await self._run_prefix(prefix, wanted, limits, report, partial(decide, cause=cause))
            if wanted.names and report.matched == matched < limits.limit:
                report.not_found.append(prefix)
        counts = {"matched": report.matched, "changed": report.changed}
        logger.info(reason, extra={"action": "bulk", **counts})
        return report

    async def _run_prefix(
        self,
        prefix: str,
        wanted: BulkFilter,
        limits: BulkLimits,
        report: BulkReport,
        decide: Callable[[Sandbox], Transition[Sandbox]],
    ) -> None:
        for _ in range(_MOST_READ // _PAGE):
            if report.matched >= limits.limit:
                return
            page = await self._store.page(
                SandboxFilter(wanted.status, wanted.track, prefix),
                limit=min(_PAGE, limits.limit - report.matched),
                cursor=report.next_cursor,
            )
            await self._add([row for row in page.items if wanted.matches(row)], report, decide)
            report.next_cursor = page.next_cursor
            if page.next_cursor is None:
                return

    async def _add(
        self,
        rows: list[Sandbox],
        report: BulkReport,
        decide: Callable[[Sandbox], Transition[Sandbox]],
    ) -> None:
        report.matched += len(rows)
        if report.dry_run:
            report.sandbox_ids += [row.sandbox_id for row in rows]
            return
        applied = await self._assigner.apply([decide(row) for row in rows])
        done = [row.sandbox_id for row, was in zip(rows, applied, strict=True) if was]
        report.sandbox_ids += done
        report.changed += len(done)
        report.skipped += len(rows) - len(done)

    def _hours_ago(self, hours: float) -> int:
        return int(self._clock.now()) - round(hours * 3600)
