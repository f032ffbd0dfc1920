"""The job `expiry`: reclaims leases that were not released."""

import logging
from dataclasses import dataclass

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.model import Sandbox, decide_expiry
from sandyard.broker.pool.ports import PoolStore
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock

logger = logging.getLogger(__name__)

_EXPIRY = actor("job", "expiry")
_PAGE = 100


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
        last: Sandbox | None = None
        while rows := await self._store.overdue(ended_by=ended_by, limit=_PAGE, after=last):
            last = rows[-1]
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
