"""Telemetry's use cases. Each reads the clock once; expired data is never returned."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, Transition, change_entity
from sandyard.kit.clock import Clock, now_ms
from sandyard.kit.concurrency.keyed_locks import KeyedLocks
from sandyard.kit.ids import IdMaker
from sandyard.kit.paging import Page
from sandyard.telemetry.errors import (
    BatchSizeExceededError,
    DeviceBusyError,
    DeviceNotFoundError,
    EmptyBatchError,
    InvalidRangeError,
    NoReadingsError,
    TooManyBucketsError,
)
from sandyard.telemetry.intake import validate_all
from sandyard.telemetry.metrics import TelemetryMetrics
from sandyard.telemetry.model import (
    LATEST_MS,
    Bucket,
    Device,
    DeviceOrder,
    IntakeReport,
    Reading,
    Registration,
    Rejection,
    RejectionCode,
    Retention,
    TimeRange,
    account_for,
    decide_registration,
    decide_rename,
    first_of_each_id,
    whole_second,
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
        self._locks = KeyedLocks()
        self._make_confirmation_id = make_confirmation_id
        self._metrics = metrics
        self._retention = retention

    async def register(self, registration: Registration, *, key_id: str) -> Device:
        """Register the device, or update it; its confirmation id never changes."""
        cause = self._cause(actor("key", key_id))
        seen_at = whole_second(cause.at_ms)
        confirmation_id = self._make_confirmation_id()

        def decide(device: Device | None) -> Transition[Device] | None:
            return decide_registration(
                device, registration, confirmation_id=confirmation_id, cause=cause
            )

        device = await self._change(registration.hardware_id, decide)
        await self._store.mark_seen(device.hardware_id, seen_at=seen_at)
        self._metrics.registrations.inc()
        return replace(device, last_seen_at=max(seen_at, device.last_seen_at))

    async def ingest(self, raw: Sequence[object]) -> IntakeReport:
        """Store the new ones of 1 to 100 readings, each once, and account for all of them.

        Everything in the report is durable. After UnavailableError the device sends all of it
        again.
        """
        if not raw:
            raise EmptyBatchError
        if len(raw) > MAX_BATCH:
            raise BatchSizeExceededError(details={"readings": len(raw), "at_most": MAX_BATCH})
        started = time.perf_counter()
        received_ms = now_ms(self._clock)
        good, rejected = validate_all(raw, oldest_ms=self._retention.oldest_ms(received_ms))
        report = IntakeReport(rejected=rejected)
        if good:
            await self._insert(good, report, received_ms)
        report.rejected.sort(key=lambda rejection: rejection.index)
        self._metrics.count(report)
        self._metrics.intake_latency.observe(time.perf_counter() - started)
        return report

    async def _insert(
        self, good: Sequence[tuple[int, Reading]], report: IntakeReport, received_ms: int
    ) -> None:
        devices = await self._store.find_devices({reading.hardware_id for _, reading in good})
        known = [entry for entry in good if entry[1].hardware_id in devices]
        if known:
            claims = first_of_each_id(reading for _, reading in known)
            stored = await self._store.insert_readings(claims, devices=devices, now_ms=received_ms)
            account_for(known, stored, report)
        report.rejected += [
            Rejection(index, reading.batch_id, RejectionCode.DEVICE_NOT_REGISTERED)
            for index, reading in good
            if reading.hardware_id not in devices
        ]

    async def list_devices(
        self, *, order: DeviceOrder = DeviceOrder.LAST_SEEN, limit: int, cursor: str | None
    ) -> Page[Device]:
        """Most recently seen first, or longest silent first."""
        return await self._store.page_of_devices(order=order, limit=limit, cursor=cursor)

    async def get_device(self, hardware_id: str) -> Device:
        devices = await self._store.find_devices([hardware_id])
        if hardware_id not in devices:
            raise DeviceNotFoundError
        return devices[hardware_id]

    async def rename_device(self, hardware_id: str, friendly_name: str | None) -> Device:
        cause = self._cause(actor("operator"))
        return await self._change(
            hardware_id, lambda device: decide_rename(device, friendly_name, cause)
        )

    async def list_readings(
        self,
        hardware_id: str,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int,
        cursor: str | None = None,
    ) -> Page[Reading]:
        """Newest first, by their timestamps; both ends of the range are included."""
        within = self._within(from_ms, to_ms)
        await self.get_device(hardware_id)
        return await self._store.page_of_readings(hardware_id, within, limit=limit, cursor=cursor)

    async def latest(self, hardware_id: str) -> Reading:
        """The reading with the greatest timestamp, whenever it arrived."""
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
        """All readings of the range, oldest first, in portions; the device is checked first."""
        within = self._within(from_ms, to_ms)
        await self.get_device(hardware_id)
        return self._store.readings(hardware_id, within)

    async def _change(
        self, hardware_id: str, decide: Callable[[Device | None], Transition[Device] | None]
    ) -> Device:
        async def find() -> Device | None:
            return (await self._store.find_devices([hardware_id])).get(hardware_id)

        return await change_entity(
            find, decide, self._store.apply, lock=self._locks.of(hardware_id), busy=DeviceBusyError
        )

    def _cause(self, by: str) -> Cause:
        return Cause(by, now_ms(self._clock))

    def _within(self, from_ms: int | None, to_ms: int | None) -> TimeRange:
        """The requested range, without expired readings."""
        asked = TimeRange(from_ms or 0, LATEST_MS if to_ms is None else to_ms)
        if asked.from_ms > asked.to_ms:
            raise InvalidRangeError
        return asked.since(self._retention.oldest_ms(now_ms(self._clock)))
