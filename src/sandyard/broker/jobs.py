"""The Broker's jobs: sync with the provider, clean up what was given up, expire the forgotten."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sandyard.broker.deletion_model import DeletionPolicy, decide_deleted, decide_failed_deletion
from sandyard.broker.errors import CircuitOpenError, ProviderUnavailableError
from sandyard.broker.history import SampleReport
from sandyard.broker.holds import HoldReport
from sandyard.broker.listing_model import (
    decide_discovery,
    decide_listing,
    is_confirmed,
    loses_too_many,
)
from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.model import (
    FREE,
    Listed,
    Sandbox,
    Status,
    decide_expiry,
    decide_unreserved,
    tombstone_end,
)
from sandyard.broker.offers import Offers
from sandyard.broker.ports import PoolStore, Provider
from sandyard.broker.queue import QueueReport
from sandyard.broker.reservations import ReservationReport
from sandyard.kit import ids
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.parallel import for_each
from sandyard.kit.events import actor
from sandyard.kit.events_job import PruneReport
from sandyard.kit.jobs import Job, JobRunner
from sandyard.kit.transitions import Cause, Transition

logger = logging.getLogger(__name__)

_PAGE = 100
_BATCH = 100
"""So many sandboxes sync changes before it looks at the queue again: who queues while they are
written is passed by newcomers for that long."""

T = TypeVar("T")


@dataclass(slots=True)
class SyncReport:
    listed: int = 0
    added: int = 0
    unchanged: int = 0
    made_stale: int = 0
    restored: int = 0
    renamed: int = 0
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

    listed: Mapping[str, Listed]
    cause: Cause
    known: set[str] = field(default_factory=set)
    available: int = 0
    missing: list["_Compared"] = field(default_factory=list)
    back: list["_Compared"] = field(default_factory=list)
    reserved: list[Sandbox] = field(default_factory=list)
    renamed: list["_Compared"] = field(default_factory=list)
    confirmed: list[str] = field(default_factory=list)

    def add(self, row: Sandbox) -> None:
        listed = self.listed.get(row.sandbox_id)
        self.known.add(row.sandbox_id)
        self.available += row.status in FREE
        if row.status is Status.RESERVED and row.reservation_id is not None:
            self.reserved.append(row)
        decided = decide_listing(row, listed, cause=self.cause)
        if decided is not None:
            self._changes(row, decided.result).append((row, listed))
        elif is_confirmed(row, listed):
            self.confirmed.append(row.sandbox_id)

    @property
    def unknown(self) -> Mapping[str, Listed]:
        """What the list has and the pool does not."""
        return {each: self.listed[each] for each in self.listed.keys() - self.known}

    def _changes(self, before: Sandbox, after: Sandbox) -> list["_Compared"]:
        if before.status is after.status:
            return self.renamed
        return self.missing if after.status is Status.STALE else self.back


_Compared = tuple[Sandbox, Listed | None]
"""A row and what the list says of it, if anything."""


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
        self._offers = Offers(store, clock=clock)
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
        cause = _cause("sync", self._clock)
        by_id = {ids.sandbox_id(entry.external_id): entry for entry in listed}
        comparison = _Comparison(by_id, cause)
        report = SyncReport(listed=len(by_id))
        async for rows in self._store.everything():
            for row in rows:
                comparison.add(row)
        await self._apply(comparison, report, force=force)
        await self._return_orphans(comparison.reserved)
        return report

    async def _return_orphans(self, reserved: Sequence[Sandbox]) -> None:
        """Let go what is kept for a reservation that has ended: a lagging index may have hidden it
        from its end."""
        if not reserved:
            return
        is_open = {each.reservation_id for each in await self._store.open_reservations()}
        cause = _cause("sync", self._clock).because("its reservation has ended")
        orphans = [
            row
            for row in reserved
            if row.reserved_for == row.reservation_id and row.reservation_id not in is_open
        ]
        await self._offers.apply([decide_unreserved(row, cause) for row in orphans])

    async def _apply(self, comparison: _Comparison, report: SyncReport, *, force: bool) -> None:
        store, now = self._store, comparison.cause.at_ms // 1000
        unknown = comparison.unknown
        tombstoned = await store.tombstoned(list(unknown))
        new = [each for key, each in unknown.items() if key not in tombstoned]
        report.added = await self._change(new, self._discover)
        report.restored = await self._change(comparison.back, _decide_compared)
        report.renamed = await self._change(comparison.renamed, _decide_compared)
        missing = comparison.missing
        if loses_too_many(len(missing), of=comparison.available) and not force:
            report.held_back = len(missing)
            logger.error(
                "sync was held back: it would make most of the pool stale; check the provider's "
                "list, then force it",
                extra={"action": "sync", "missing": len(missing), "of": comparison.available},
            )
        else:
            report.made_stale = await self._change(missing, _decide_compared)
        await store.confirm_listed(comparison.confirmed, now=now)
        report.unchanged = len(comparison.confirmed)
        await store.renew_tombstones(list(tombstoned), kept_until=tombstone_end(now))
        report.tombstones_listed = len(tombstoned)
        self._metrics.tombstones_listed.inc(len(tombstoned))
        await store.drop_tombstones(now=now)

    async def _change(
        self, subjects: Sequence[T], decide: Callable[..., Transition[Sandbox] | None]
    ) -> int:
        """Decide and apply in batches, each at its own time: an event is not to be written long
        after the time that it names."""
        changed = 0
        for start in range(0, len(subjects), _BATCH):
            cause = _cause("sync", self._clock)
            decided = [decide(each, cause=cause) for each in subjects[start : start + _BATCH]]
            changed += sum(await self._offers.apply([each for each in decided if each is not None]))
        return changed

    def _discover(self, listed: Listed, *, cause: Cause) -> Transition[Sandbox]:
        return decide_discovery(listed, lab_duration_hours=self._lab_duration_hours, cause=cause)


def _decide_compared(compared: _Compared, *, cause: Cause) -> Transition[Sandbox] | None:
    return decide_listing(*compared, cause=cause)


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
            deleted = decide_deleted(sandbox, _cause("cleanup", self._clock))
            if (await self._store.apply([deleted]))[0]:
                report.deleted += 1
                self._metrics.cleanup.labels("deleted").inc()

    async def _record_failure(
        self, sandbox: Sandbox, error: ProviderUnavailableError, report: CleanupReport
    ) -> None:
        cause = _cause("cleanup", self._clock).because(error.reason or error.message)
        failed = decide_failed_deletion(
            sandbox, self._policy, jitter=self._random.random(), cause=cause
        )
        if not (await self._store.apply([failed]))[0]:
            return
        about = {
            "action": "cleanup",
            "sandbox_id": sandbox.sandbox_id,
            "track_id": sandbox.allocated_to_track,
            "attempts": failed.result.deletion_retry_count,
            "reason": cause.reason,
        }
        if failed.result.status is Status.DELETION_FAILED:
            report.failed += 1
            self._metrics.cleanup.labels("failed").inc()
            logger.error("deletion failed permanently; an operator must act", extra=about)
        else:
            report.retried += 1
            self._metrics.cleanup.labels("retried").inc()
            logger.warning("deletion failed and will be retried", extra=about)


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
        report = ExpiryReport()
        ended_by = int(self._clock.now()) - self._grace_sec
        last: Sandbox | None = None
        while rows := await self._store.overdue(ended_by=ended_by, limit=_PAGE, after=last):
            last = rows[-1]
            cause = _cause("expiry", self._clock)
            decided = [decide_expiry(row, grace_sec=self._grace_sec, cause=cause) for row in rows]
            due = [each for each in decided if each is not None]
            for each, done in zip(due, await self._store.apply(due), strict=True):
                if done:
                    report.expired += 1
                    self._warn(each.result)
        return report

    def _warn(self, row: Sandbox) -> None:
        self._metrics.expiry.inc()
        logger.warning(
            "a track did not release its sandbox in time",
            extra={
                "action": "expiry",
                "track_id": row.allocated_to_track,
                "sandbox_id": row.sandbox_id,
            },
        )


@dataclass(frozen=True, slots=True)
class BrokerJobs:
    """The Broker's jobs under their leases, for the schedule and for operators alike."""

    runner: JobRunner
    sync_job: Job[SyncReport]
    cleanup_job: Job[CleanupReport]
    expiry_job: Job[ExpiryReport]
    queue_job: Job[QueueReport]
    reservations_job: Job[ReservationReport]
    holds_job: Job[HoldReport]
    probe_job: Job[Any]
    pool_job: Job[Any]
    deliver_job: Job[Any]
    client_leases_job: Job[Any]
    history_job: Job[SampleReport]
    events_job: Job[PruneReport]

    @property
    def all(self) -> Sequence[Job[Any]]:
        return (
            self.sync_job,
            self.cleanup_job,
            self.expiry_job,
            self.queue_job,
            self.reservations_job,
            self.holds_job,
            self.probe_job,
            self.pool_job,
            self.deliver_job,
            self.client_leases_job,
            self.history_job,
            self.events_job,
        )

    async def sync(self, *, force: bool = False) -> SyncReport:
        return await self.runner.run(self.sync_job.forced() if force else self.sync_job)

    async def cleanup(self) -> CleanupReport:
        return await self.runner.run(self.cleanup_job)

    async def expire(self) -> ExpiryReport:
        return await self.runner.run(self.expiry_job)


def _cause(job: str, clock: Clock) -> Cause:
    return Cause(actor("job", job), int(clock.now() * 1000))
