"""The Broker's jobs: sync with the provider, clean up what was given up, expire the forgotten."""

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from sandyard.broker.errors import CircuitOpenError, ProviderUnavailableError
from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.model import (
    TOMBSTONE_SECONDS,
    Change,
    DeletionPolicy,
    Listed,
    Sandbox,
    StaleReason,
    Status,
    Tombstone,
    decide_failed_deletion,
    is_overdue,
    loses_too_many,
)
from sandyard.broker.ports import PoolStore, Provider
from sandyard.kit import ids
from sandyard.kit.clock import Clock
from sandyard.kit.parallel import for_each

logger = logging.getLogger(__name__)

_PAGE = 100


@dataclass(slots=True)
class SyncReport:
    listed: int = 0
    added: int = 0
    unchanged: int = 0
    made_stale: int = 0
    restored: int = 0
    held_back: int = 0
    tombstones_listed: int = 0


@dataclass(slots=True)
class CleanupReport:
    deleted: int = 0
    retried: int = 0
    failed: int = 0
    postponed: int = 0


@dataclass(slots=True)
class ExpiryReport:
    expired: int = 0


@dataclass(slots=True)
class _Comparison:
    """The pool's rows beside the provider's list."""

    unknown: dict[str, Listed]
    available: int = 0
    missing: list[Sandbox] = field(default_factory=list)
    back: list[Sandbox] = field(default_factory=list)
    confirmed: list[str] = field(default_factory=list)

    def add(self, row: Sandbox) -> None:
        is_listed = self.unknown.pop(row.sandbox_id, None) is not None
        if row.status is Status.AVAILABLE:
            self.available += 1
            if is_listed:
                self.confirmed.append(row.sandbox_id)
            else:
                self.missing.append(row)
        elif row.status is Status.STALE and is_listed:
            if row.stale_reason is StaleReason.MISSING and not row.allocated_at:
                self.back.append(row)
            else:
                self.confirmed.append(row.sandbox_id)


class Sync:
    """Brings the pool in line with the provider's list, without touching what is in use."""

    def __init__(
        self,
        store: PoolStore,
        provider: Provider,
        *,
        clock: Clock,
        metrics: BrokerMetrics,
        lab_duration_hours: float,
    ) -> None:
        self._store = store
        self._provider = provider
        self._clock = clock
        self._metrics = metrics
        self._lab_duration_hours = lab_duration_hours

    async def run(self, *, force: bool = False) -> SyncReport:
        """Compare and apply. `force` lets also a suspiciously large part of the pool go stale."""
        started = time.perf_counter()
        try:
            report = await self._run(force=force)
        except Exception:
            self._metrics.sync.labels("failed").inc()
            raise
        self._metrics.sync.labels("held_back" if report.held_back else "succeeded").inc()
        self._metrics.sync_duration.observe(time.perf_counter() - started)
        return report

    async def _run(self, *, force: bool) -> SyncReport:
        listed = await self._provider.list_sandboxes()
        now = int(self._clock.now())
        comparison = _Comparison({ids.sandbox_id(entry.external_id): entry for entry in listed})
        report = SyncReport(listed=len(comparison.unknown))
        async for rows in self._store.everything():
            for row in rows:
                comparison.add(row)
        await self._apply(comparison, report, now=now, force=force)
        return report

    async def _apply(
        self, comparison: _Comparison, report: SyncReport, *, now: int, force: bool
    ) -> None:
        store = self._store
        buried = await store.buried(list(comparison.unknown))
        report.added = await store.add(
            [
                Sandbox.discovered(entry, lab_duration_hours=self._lab_duration_hours, now=now)
                for sandbox_id, entry in comparison.unknown.items()
                if sandbox_id not in buried
            ]
        )
        report.restored = sum(
            await store.apply([Change(row, row.listed_again(now)) for row in comparison.back])
        )
        missing = comparison.missing
        if loses_too_many(len(missing), of=comparison.available) and not force:
            report.held_back = len(missing)
            logger.error(
                "sync would make most of the pool stale and did not; look at the provider's list, "
                "then force it",
                extra={"action": "sync", "missing": len(missing), "of": comparison.available},
            )
        else:
            changes = [Change(row, row.made_stale(StaleReason.MISSING, now)) for row in missing]
            report.made_stale = sum(await store.apply(changes))
        await store.confirm_listed(comparison.confirmed, now=now)
        report.unchanged = len(comparison.confirmed)
        await store.renew_tombstones(list(buried), kept_until=now + TOMBSTONE_SECONDS)
        report.tombstones_listed = len(buried)
        self._metrics.tombstones_listed.inc(len(buried))
        await store.drop_tombstones(now=now)


class Cleanup:
    """Deletes at the provider what was given up, a bounded number at a time."""

    def __init__(
        self,
        store: PoolStore,
        provider: Provider,
        *,
        clock: Clock,
        metrics: BrokerMetrics,
        policy: DeletionPolicy,
        parallel: int,
        randomness: random.Random,
    ) -> None:
        self._store = store
        self._provider = provider
        self._clock = clock
        self._metrics = metrics
        self._policy = policy
        self._parallel = parallel
        self._random = randomness

    async def run(self) -> CleanupReport:
        """Try every deletion that is due once; stop early while the provider is left alone."""
        started = time.perf_counter()
        report = CleanupReport()
        now = int(self._clock.now())
        last: Sandbox | None = None
        while due := await self._store.deletable(now=now, limit=_PAGE, after=last):
            last = due[-1]
            await self._delete_all(due, report)
            if report.postponed:
                break
        self._metrics.cleanup_duration.observe(time.perf_counter() - started)
        return report

    async def _delete_all(self, due: Sequence[Sandbox], report: CleanupReport) -> None:
        await for_each(
            due,
            lambda sandbox: self._delete(sandbox, report),
            slots=asyncio.Semaphore(self._parallel),
        )

    async def _delete(self, sandbox: Sandbox, report: CleanupReport) -> None:
        try:
            await self._provider.delete_sandbox(sandbox.external_id)
        except CircuitOpenError:
            report.postponed += 1
        except ProviderUnavailableError as error:
            await self._record_failure(sandbox, error, report)
        else:
            now = int(self._clock.now())
            if await self._store.bury(sandbox, Tombstone.of(sandbox, now)):
                report.deleted += 1
                self._metrics.cleanup.labels("deleted").inc()

    async def _record_failure(
        self, sandbox: Sandbox, error: ProviderUnavailableError, report: CleanupReport
    ) -> None:
        change = decide_failed_deletion(
            sandbox, self._policy, jitter=self._random.random(), now=int(self._clock.now())
        )
        if not (await self._store.apply([change]))[0]:
            return
        about = {
            "action": "cleanup",
            "sandbox_id": sandbox.sandbox_id,
            "track_id": sandbox.allocated_to_track,
            "attempts": change.after.deletion_retry_count,
            "reason": error.reason or error.message,
        }
        if change.after.status is Status.DELETION_FAILED:
            report.failed += 1
            self._metrics.cleanup.labels("failed").inc()
            logger.error("deletion failed for good; an operator has to look", extra=about)
        else:
            report.retried += 1
            self._metrics.cleanup.labels("retried").inc()
            logger.warning("deletion failed; it is tried again later", extra=about)


class Expiry:
    """Takes back what tracks forgot, once the lab and the grace period are over."""

    def __init__(
        self, store: PoolStore, *, clock: Clock, metrics: BrokerMetrics, grace_sec: int
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._grace_sec = grace_sec

    async def run(self) -> ExpiryReport:
        now = int(self._clock.now())
        report = ExpiryReport()
        ended_by = now - self._grace_sec
        last: Sandbox | None = None
        while rows := await self._store.overdue(ended_by=ended_by, limit=_PAGE, after=last):
            last = rows[-1]
            due = [row for row in rows if is_overdue(row, grace_sec=self._grace_sec, now=now)]
            changes = [Change(row, row.sent_to_deletion(now)) for row in due]
            for row, done in zip(due, await self._store.apply(changes), strict=True):
                if done:
                    report.expired += 1
                    self._warn(row)
        return report

    def _warn(self, row: Sandbox) -> None:
        self._metrics.expiry.inc()
        logger.warning(
            "track did not give its sandbox up in time",
            extra={
                "action": "expiry",
                "track_id": row.allocated_to_track,
                "sandbox_id": row.sandbox_id,
            },
        )
