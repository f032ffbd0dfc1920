"""Telemetry's use cases. Each reads the clock once; what has expired is never shown."""

import time
from collections.abc import AsyncIterator, Sequence

from sandyard.kit.clock import Clock, rfc3339
from sandyard.kit.ids import IdMaker
from sandyard.kit.paging import Page
from sandyard.telemetry.errors import (
    BatchSizeExceededError,
    DeviceNotFoundError,
    EmptyBatchError,
    InvalidRangeError,
    NoReadingsError,
    TooManyBucketsError,
)
from sandyard.telemetry.intake import judge_all
from sandyard.telemetry.metrics import TelemetryMetrics
from sandyard.telemetry.model import (
    LATEST_MS,
    Bucket,
    Device,
    IntakeReport,
    Reading,
    Registration,
    Rejection,
    RejectionCode,
    Retention,
    TimeRange,
    account_for,
    claims_of,
)
from sandyard.telemetry.ports import TelemetryStore

MAX_BATCH = 100
MAX_BUCKETS = 10_000


class Telemetry:
    def __init__(
        self,
        store: TelemetryStore,
        *,
        clock: Clock,
        make_confirmation_id: IdMaker,
        metrics: TelemetryMetrics,
        retention: Retention,
    ) -> None:
        self._store = store
        self._clock = clock
        self._make_confirmation_id = make_confirmation_id
        self._metrics = metrics
        self._retention = retention

    async def register(self, registration: Registration) -> Device:
        """Make the device known, or bring it up to date; its confirmation id never changes."""
        device = await self._store.register(
            registration,
            confirmation_id=self._make_confirmation_id(),
            now=rfc3339(self._clock.now()),
        )
        self._metrics.registrations.inc()
        return device

    async def ingest(self, raw: Sequence[object]) -> IntakeReport:
        """Store what is new of 1 to 100 readings, each once, and account for every one of them.

        What is in the report is durable. On UnavailableError the device sends all of it again.
        """
        if not raw:
            raise EmptyBatchError
        if len(raw) > MAX_BATCH:
            raise BatchSizeExceededError(details={"readings": len(raw), "at_most": MAX_BATCH})
        started = time.perf_counter()
        now = self._clock.now()
        good, rejected = judge_all(raw, oldest_ms=self._retention.oldest_ms(now))
        report = IntakeReport(rejected=rejected)
        if good:
            await self._keep(good, report, now=int(now))
        report.rejected.sort(key=lambda rejection: rejection.index)
        self._metrics.count(report)
        self._metrics.intake_latency.observe(time.perf_counter() - started)
        return report

    async def _keep(
        self, good: Sequence[tuple[int, Reading]], report: IntakeReport, *, now: int
    ) -> None:
        devices = await self._store.find_devices({reading.hardware_id for _, reading in good})
        known = [entry for entry in good if entry[1].hardware_id in devices]
        if known:
            claims = claims_of(reading for _, reading in known)
            account_for(known, await self._store.keep(claims, devices=devices, now=now), report)
        report.rejected += [
            Rejection(index, reading.batch_id, RejectionCode.DEVICE_NOT_REGISTERED)
            for index, reading in good
            if reading.hardware_id not in devices
        ]

    async def list_devices(self, *, limit: int, cursor: str | None) -> Page[Device]:
        """The most recently seen first."""
        return await self._store.page_of_devices(limit=limit, cursor=cursor)

    async def get_device(self, hardware_id: str) -> Device:
        devices = await self._store.find_devices([hardware_id])
        if hardware_id not in devices:
            raise DeviceNotFoundError
        return devices[hardware_id]

    async def rename_device(self, hardware_id: str, friendly_name: str | None) -> Device:
        device = await self._store.rename_device(hardware_id, friendly_name)
        if device is None:
            raise DeviceNotFoundError
        return device

    async def list_readings(
        self,
        hardware_id: str,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int,
        cursor: str | None = None,
    ) -> Page[Reading]:
        """The newest first, by their own time; both ends of the range are included."""
        within = self._within(from_ms, to_ms)
        await self.get_device(hardware_id)
        return await self._store.page_of_readings(hardware_id, within, limit=limit, cursor=cursor)

    async def latest(self, hardware_id: str) -> Reading:
        """The reading with the greatest time, whenever it came in."""
        page = await self.list_readings(hardware_id, limit=1)
        if not page.items:
            raise NoReadingsError
        return page.items[0]

    async def series(
        self, hardware_id: str, metric: str, *, from_ms: int, to_ms: int, bucket_ms: int
    ) -> Sequence[Bucket]:
        within = self._within(from_ms, to_ms)
        if within.to_ms // bucket_ms - within.from_ms // bucket_ms >= MAX_BUCKETS:
            raise TooManyBucketsError
        await self.get_device(hardware_id)
        return await self._store.series(hardware_id, metric, within, bucket_ms=bucket_ms)

    async def export(
        self, hardware_id: str, *, from_ms: int | None, to_ms: int | None
    ) -> AsyncIterator[Sequence[Reading]]:
        """All readings of the range, the oldest first, in portions; the device is checked first."""
        within = self._within(from_ms, to_ms)
        await self.get_device(hardware_id)
        return self._store.readings(hardware_id, within)

    def _within(self, from_ms: int | None, to_ms: int | None) -> TimeRange:
        """The asked range, without what has expired."""
        asked = TimeRange(from_ms or 0, LATEST_MS if to_ms is None else to_ms)
        if asked.from_ms > asked.to_ms:
            raise InvalidRangeError
        return asked.since(self._retention.oldest_ms(self._clock.now()))
