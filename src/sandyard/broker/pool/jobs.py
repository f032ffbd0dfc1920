"""The jobs `cleanup`, which deletes released sandboxes at the provider; `expiry`, which reclaims
leases that were not released; and `holds`, which ends overdue holds."""

import asyncio
import logging
import random
import time
from dataclasses import dataclass

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool import provider_model
from sandyard.broker.pool.lease_model import decide_hold_end
from sandyard.broker.pool.model import Sandbox, Status, decide_expiry
from sandyard.broker.pool.ports import PoolStore, SandboxFilter, pages_of
from sandyard.broker.provider.errors import CircuitOpenError, ProviderUnavailableError
from sandyard.broker.provider.ports import Provider
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.tasks import for_each
from sandyard.kit.wired import wired

logger = logging.getLogger(__name__)
_CLEANUP = actor("job", "cleanup")
_EXPIRY = actor("job", "expiry")
_HOLDS = actor("job", "holds")


@dataclass(slots=True)
class CleanupReport:
    deleted: int = 0
    retried: int = 0
    failed: int = 0
    postponed: int = 0


@wired
class Cleanup:
    """Deletes released sandboxes at the provider, a bounded number at a time."""

    store: PoolStore
    provider: Provider
    clock: Clock
    metrics: BrokerMetrics
    policy: provider_model.DeletionPolicy
    parallel: int
    randomness: random.Random

    async def run(self) -> CleanupReport:
        """Try every due deletion once; stop early while the circuit is open."""
        started = time.perf_counter()
        report, slots = CleanupReport(), asyncio.Semaphore(self.parallel)
        now = int(self.clock.now())
        async for due in self.store.deletable(now=now):
            await for_each(due, lambda sandbox: self._delete(sandbox, report), slots=slots)
            if report.postponed:
                break
        self.metrics.cleanup_duration.observe(time.perf_counter() - started)
        return report

    async def _delete(self, sandbox: Sandbox, report: CleanupReport) -> None:
        try:
            await self.provider.delete_sandbox(sandbox.external_id)
        except CircuitOpenError:
            report.postponed += 1
        except ProviderUnavailableError as error:
            await self._record_failure(sandbox, error, report)
        else:
            deleted = provider_model.decide_deleted(sandbox, Cause.by(_CLEANUP, self.clock))
            if (await self.store.apply([deleted]))[0]:
                report.deleted += 1
                self.metrics.cleanup.labels("deleted").inc()

    async def _record_failure(
        self, sandbox: Sandbox, error: ProviderUnavailableError, report: CleanupReport
    ) -> None:
        cause = Cause.by(_CLEANUP, self.clock).because(error.reason or error.message)
        failed = provider_model.decide_failed_deletion(
            sandbox, self.policy, jitter=self.randomness.random(), cause=cause
        )
        if not (await self.store.apply([failed]))[0]:
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
            self.metrics.cleanup.labels("failed").inc()
            logger.error("deletion failed permanently; an operator must act", extra=about)
        else:
            report.retried += 1
            self.metrics.cleanup.labels("retried").inc()
            logger.warning("deletion failed and will be retried", extra=about)


@dataclass(slots=True)
class ExpiryReport:
    expired: int = 0


@wired
class Expiry:
    """Ends leases that tracks did not release, after the lab and the grace period are over."""

    store: PoolStore
    clock: Clock
    metrics: BrokerMetrics
    grace_sec: int

    async def run(self) -> ExpiryReport:
        report = ExpiryReport()
        ended_by = int(self.clock.now()) - self.grace_sec
        async for rows in self.store.overdue(ended_by=ended_by):
            cause = Cause.by(_EXPIRY, self.clock)
            decided = [decide_expiry(row, grace_sec=self.grace_sec, cause=cause) for row in rows]
            due = [each for each in decided if each is not None]
            for each, done in zip(due, await self.store.apply(due), strict=True):
                if done:
                    report.expired += 1
                    self._warn(each.result)
        return report

    def _warn(self, row: Sandbox) -> None:
        self.metrics.expiry.inc()
        logger.warning(
            "a track did not release its sandbox in time",
            extra={
                "action": "expiry",
                "track_id": row.allocated_to_track,
                "sandbox_id": row.sandbox_id,
            },
        )


@dataclass(slots=True)
class HoldReport:
    held: int = 0
    deleted: int = 0
    restored: int = 0


@wired
class Holds:
    store: PoolStore
    clock: Clock
    metrics: BrokerMetrics
    assigner: SandboxAssigner

    async def run(self) -> HoldReport:
        report = HoldReport()
        async for rows in pages_of(self.store, SandboxFilter(Status.HELD)):
            for row in rows:
                report.held += 1
                await self._end(row, report)
        return report

    async def _end(self, row: Sandbox, report: HoldReport) -> None:
        ended = decide_hold_end(row, Cause.by(_HOLDS, self.clock))
        if ended is None or not (await self.assigner.apply([ended]))[0]:
            return
        is_deleted = ended.result.status is Status.PENDING_DELETION
        report.deleted += is_deleted
        report.restored += not is_deleted
        self.metrics.holds_overdue.inc()
        logger.warning(
            "a hold has ended by itself; its sandbox is %s",
            "deleted" if is_deleted else "restored",
            extra={
                "action": "holds",
                "sandbox_id": row.sandbox_id,
                "track_id": row.allocated_to_track,
                "reason": row.status_reason,
            },
        )
