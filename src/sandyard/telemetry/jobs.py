"""The job that removes expired readings, for engines without a TTL."""

from dataclasses import dataclass

from sandyard.kit.clock import Clock, now_ms
from sandyard.telemetry.metrics import TelemetryMetrics
from sandyard.telemetry.model import Retention
from sandyard.telemetry.ports import ExpiredReadings

_PORTION = 1000


@dataclass(slots=True)
class RetentionReport:
    readings_removed: int = 0
    markers_removed: int = 0


class RemoveExpired:
    """Removes expired readings in small transactions, so that intake never waits long."""

    def __init__(
        self,
        store: ExpiredReadings,
        *,
        clock: Clock,
        metrics: TelemetryMetrics,
        retention: Retention,
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._retention = retention

    async def run(self) -> RetentionReport:
        started_ms = now_ms(self._clock)
        report = RetentionReport()
        await self._remove_readings(self._retention.oldest_ms(started_ms), report)
        while removed := await self._store.remove_markers(now_ms=started_ms, limit=_PORTION):
            report.markers_removed += removed
        return report

    async def _remove_readings(self, oldest_ms: int, report: RetentionReport) -> None:
        after = ""
        while devices := await self._store.devices_with_expired(
            oldest_ms=oldest_ms, after=after, limit=_PORTION
        ):
            after = devices[-1]
            for device in devices:
                while removed := await self._store.remove_expired(
                    device, oldest_ms=oldest_ms, limit=_PORTION
                ):
                    report.readings_removed += removed
                    self._metrics.expired.inc(removed)
