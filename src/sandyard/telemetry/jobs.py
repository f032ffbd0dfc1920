"""The job that removes expired readings, for engines without a TTL."""

from dataclasses import dataclass

from sandyard.kit.clock import Clock, now_ms
from sandyard.kit.wired import wired
from sandyard.telemetry.metrics import TelemetryMetrics
from sandyard.telemetry.model import Retention
from sandyard.telemetry.ports import ExpiredReadings

_PORTION = 1000


@dataclass(slots=True)
class RetentionReport:
    readings_removed: int = 0
    markers_removed: int = 0


@wired
class RemoveExpired:
    """Removes expired readings in small transactions, so that intake never waits long."""

    store: ExpiredReadings
    clock: Clock
    metrics: TelemetryMetrics
    retention: Retention

    async def run(self) -> RetentionReport:
        started_ms = now_ms(self.clock)
        report = RetentionReport()
        await self._remove_readings(self.retention.oldest_ms(started_ms), report)
        while removed := await self.store.remove_markers(now_ms=started_ms, limit=_PORTION):
            report.markers_removed += removed
        return report

    async def _remove_readings(self, oldest_ms: int, report: RetentionReport) -> None:
        after = ""
        while devices := await self.store.devices_with_expired(
            oldest_ms=oldest_ms, after=after, limit=_PORTION
        ):
            after = devices[-1]
            for device in devices:
                while removed := await self.store.remove_expired(
                    device, oldest_ms=oldest_ms, limit=_PORTION
                ):
                    report.readings_removed += removed
                    self.metrics.expired.inc(removed)
