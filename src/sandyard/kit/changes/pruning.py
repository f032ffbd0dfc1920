"""The job that removes events after their retention."""

from dataclasses import dataclass
from datetime import timedelta

from sandyard.kit.changes.events import EventLog
from sandyard.kit.clock import Clock


@dataclass(slots=True)
class PruneReport:
    events_removed: int = 0


class PruneEvents:
    """Removes in batches, so that writers never wait long."""

    def __init__(self, log: EventLog, *, clock: Clock, retention: timedelta) -> None:
        self._log = log
        self._clock = clock
        self._retention = retention

    async def run(self) -> PruneReport:
        report = PruneReport()
        before_ms = int((self._clock.now() - self._retention.total_seconds()) * 1000)
        after: str | None = None
        while True:
            pruned = await self._log.prune(before_ms=before_ms, after=after)
            report.events_removed += pruned.removed
            after = pruned.next_after
            if after is None:
                return report
