"""The job `holds`: reports overdue holds."""

import logging
from dataclasses import dataclass

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.filter_model import SandboxFilter
from sandyard.broker.pool.hold_model import decide_reminder
from sandyard.broker.pool.listing import pages_of
from sandyard.broker.pool.model import Sandbox, Status
from sandyard.broker.pool.ports import PoolStore
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class HoldReport:
    held: int = 0
    reminded: int = 0


class Holds:
    def __init__(self, store: PoolStore, *, clock: Clock, metrics: BrokerMetrics) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics

    async def remind(self) -> HoldReport:
        """Report each overdue hold once. It stays held: an operator decides."""
        report = HoldReport()
        async for rows in pages_of(self._store, SandboxFilter(Status.HELD)):
            for row in rows:
                report.held += 1
                report.reminded += await self._remind(row)
        return report

    async def _remind(self, row: Sandbox) -> bool:
        reminder = decide_reminder(row, Cause.by(actor("job", "holds"), self._clock))
        if reminder is None or not (await self._store.apply([reminder]))[0]:
            return False
        self._metrics.holds_overdue.inc()
        logger.warning(
            "a hold is overdue; restore or release the sandbox",
            extra={
                "action": "holds",
                "sandbox_id": row.sandbox_id,
                "track_id": row.allocated_to_track,
                "reason": row.status_reason,
            },
        )
        return True
