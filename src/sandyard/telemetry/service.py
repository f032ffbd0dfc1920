"""Telemetry's use cases. Each reads the clock once; expired data is never returned."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, Transition, change_entity
from sandyard.kit.clock import Clock, now_ms
from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.kit.ids import IdMaker
from sandyard.kit.paging import Page
from sandyard.kit.wired import wired
from sandyard.telemetry import errors, model
from sandyard.telemetry.intake import validate_all
from sandyard.telemetry.metrics import TelemetryMetrics
from sandyard.telemetry.ports import TelemetryStore

MAX_BATCH = 100
MAX_BUCKETS = 10_000
_REMOVED_AT_ONCE = 500
"""In one transaction, so that intake never waits long."""


@wired
class Telemetry:
    store: TelemetryStore
    clock: Clock
    make_confirmation_id: IdMaker
    metrics: TelemetryMetrics
    retention: model.Retention

    def __post_init__(self) -> None:
        self._locks = KeyedLocks()

    async def register(self, registration: model.Registration, *, key_id: str) -> model.Device:
        """Register the device, or update it; its confirmation id never changes."""
        cause = Cause.by(actor("key", key_id), self.clock)
        seen_at = model.whole_second(cause.at_ms)
        confirmation_id = self.make_confirmation_id()

        def decide(device: model.Device | None) -> Transition[model.Device] | None:
            return model.decide_registration(
                device, registration, confirmation_id=confirmation_id, cause=cause
            )

        device = await self._change(registration.hardware_id, decide)
        await self.store.mark_seen(device.hardware_id, seen_at=seen_at)
        self.metrics.registrations.inc()
        return replace(device, last_seen_at=max(seen_at, device.last_seen_at))

    async def ingest(self, raw: Sequence[object]) -> model.IntakeReport:
        """Store the new ones of 1 to 100 readings, each once, and account for all of them.

        Everything in the report is durable. After UnavailableError the device sends all of it
        again.
        """
        if not raw:
            raise errors.EmptyBatchError
        if len(raw) > MAX_BATCH:
            raise errors.BatchSizeExceededError(
                details={"readings": len(raw), "at_most": MAX_BATCH}
            )
        started = time.perf_counter()
        received_ms = now_ms(self.clock)
        good, rejected = validate_all(raw, oldest_ms=self.retention.oldest_ms(received_ms))
        report = model.IntakeReport(rejected=rejected)
        if good:
            await self._insert(good, report, received_ms)
        report.rejected.sort(key=lambda rejection: rejection.index)
        self.metrics.count(report)
        self.metrics.intake_latency.observe(time.perf_counter() - started)
        return report

    async def _insert(
        self,
        good: Sequence[tuple[int, model.Reading]],
        report: model.IntakeReport,
        received_ms: int,
    ) -> None:
        devices = await self.store.find_devices({reading.hardware_id for _, reading in good})
        known = [entry for entry in good if entry[1].hardware_id in devices]
        if known:
            claims = model.first_of_each_id(reading for _, reading in known)
            stored = await self.store.insert_readings(claims, devices=devices, now_ms=received_ms)
            model.account_for(known, stored, report)
        report.rejected += [
            model.Rejection(index, reading.batch_id, model.RejectionCode.DEVICE_NOT_REGISTERED)
            for index, reading in good
            if reading.hardware_id not in devices
        ]

    async def get_device(self, hardware_id: str) -> model.Device:
        devices = await self.store.find_devices([hardware_id])
        if hardware_id not in devices:
            raise errors.DeviceNotFoundError
        return devices[hardware_id]

    async def rename_device(self, hardware_id: str, friendly_name: str | None) -> model.Device:
        cause = Cause.by(actor("operator"), self.clock)
        return await self._change(
            hardware_id, lambda device: model.decide_rename(device, friendly_name, cause)
        )

    async def delete_device(self, hardware_id: str) -> model.Device:
        """Delete the device with its readings and their markers; a later registration begins anew.

        The device goes last, so that a call that was interrupted can be repeated; readings that it
        sends meanwhile go with it.
        """
        await self.get_device(hardware_id)
        await self._remove_readings(hardware_id)
        cause = Cause.by(actor("operator"), self.clock)
        device = await self._change(
            hardware_id, lambda device: model.decide_deletion(device, cause)
        )
        await self._remove_readings(hardware_id)
        return device

    async def _remove_readings(self, hardware_id: str) -> None:
        while await self.store.remove_readings(hardware_id, limit=_REMOVED_AT_ONCE):
            pass

    async def list_readings(
        self,
        hardware_id: str,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        limit: int,
        cursor: str | None = None,
    ) -> Page[model.Reading]:
        """Newest first, by their timestamps; both ends of the range are included."""
        within = self._within(from_ms, to_ms)
        await self.get_device(hardware_id)
        return await self.store.page_of_readings(hardware_id, within, limit=limit, cursor=cursor)

    async def latest(self, hardware_id: str) -> model.Reading:
        """The reading with the greatest timestamp, whenever it arrived."""
        page = await self.list_readings(hardware_id, limit=1)
        if not page.items:
            raise errors.NoReadingsError
        return page.items[0]

    async def series(
        self, hardware_id: str, metric: str, *, from_ms: int, to_ms: int, bucket_ms: int
    ) -> Sequence[model.Bucket]:
        within = self._within(from_ms, to_ms)
        if within.to_ms // bucket_ms - within.from_ms // bucket_ms >= MAX_BUCKETS:
            raise errors.TooManyBucketsError
        await self.get_device(hardware_id)
        return await self.store.series(hardware_id, metric, within, bucket_ms=bucket_ms)

    async def sensors(
        self, hardware_id: str, *, from_ms: int | None, to_ms: int | None
    ) -> Sequence[model.SensorValue]:
        """Every sensor with a reading in the range, with its latest value there."""
        within = self._within(from_ms, to_ms)
        await self.get_device(hardware_id)
        return await self.store.sensors(hardware_id, within)

    async def gaps(
        self, hardware_id: str, metric: str | None, *, from_ms: int, to_ms: int
    ) -> model.Gaps:
        """When readings with this metric, or all readings, are missing in the range. Nothing is
        missing before the device's registration, or its first reading if that is earlier."""
        within = self._within(from_ms, to_ms)
        device = await self.get_device(hardware_id)
        portions = self.store.reading_times(hardware_id, metric, within)
        times = [at async for portion in portions for at in portion]
        known_from = device.first_registered_at
        async for portion in self.store.reading_times(hardware_id, None, within):
            known_from = min(known_from, portion[0])
            break
        return model.find_gaps(times, within.since(known_from))

    async def export(
        self, hardware_id: str, *, from_ms: int | None, to_ms: int | None
    ) -> AsyncIterator[Sequence[model.Reading]]:
        """All readings of the range, oldest first, in portions; the device is checked first."""
        within = self._within(from_ms, to_ms)
        await self.get_device(hardware_id)
        return self.store.readings(hardware_id, within)

    async def _change(
        self,
        hardware_id: str,
        decide: Callable[[model.Device | None], Transition[model.Device] | None],
    ) -> model.Device:
        async def find() -> model.Device | None:
            return (await self.store.find_devices([hardware_id])).get(hardware_id)

        return await change_entity(
            find,
            decide,
            self.store.apply,
            lock=self._locks.of(hardware_id),
            busy=errors.DeviceBusyError,
        )

    def _within(self, from_ms: int | None, to_ms: int | None) -> model.TimeRange:
        """The requested range, without expired readings."""
        within = model.TimeRange(from_ms or 0, model.LATEST_MS if to_ms is None else to_ms)
        if within.from_ms > within.to_ms:
            raise errors.InvalidRangeError
        return within.since(self.retention.oldest_ms(now_ms(self.clock)))
