"""The jobs `expiry`, which reclaims leases that were not released, and `holds`, which ends overdue
holds."""

import logging
from dataclasses import dataclass

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.lease_model import decide_hold_end
from sandyard.broker.pool.model import Sandbox, Status, decide_expiry
from sandyard.broker.pool.ports import PoolStore, SandboxFilter, pages_of
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock

logger = logging.getLogger(__name__)

_EXPIRY = actor("job", "expiry")
_HOLDS = actor("job", "holds")


@dataclass(slots=True)
class ExpiryReport:
    expired: int = 0


class Expiry:
    """Ends leases that tracks did not release, after the lab and the grace period are over."""

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
        async for rows in self._store.overdue(ended_by=ended_by):
            cause = Cause.by(_EXPIRY, self._clock)
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


@dataclass(slots=True)
class HoldReport:
    held: int = 0
    deleted: int = 0
    restored: int = 0


class Holds:
    def __init__(
        self, store: PoolStore, *, clock: Clock, metrics: BrokerMetrics, assigner: SandboxAssigner
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._assigner = assigner

    async def run(self) -> HoldReport:
        """End every hold whose time is over."""
        report = HoldReport()
        async for rows in pages_of(self._store, SandboxFilter(Status.HELD)):
            for row in rows:
                report.held += 1
                await self._end(row, report)
        return report

    async def _end(self, row: Sandbox, report: HoldReport) -> None:
        ended = decide_hold_end(row, Cause.by(_HOLDS, self._clock))
        if ended is None or not (await self._assigner.apply([ended]))[0]:
            return
        is_deleted = ended.result.status is Status.PENDING_DELETION
        report.deleted += is_deleted
        report.restored += not is_deleted
        self._metrics.holds_overdue.inc()
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
