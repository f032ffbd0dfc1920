"""Devices and readings on DynamoDB.

A reading and its marker are one transaction, each on condition that it does not exist. A refused
transaction returns the existing item, so a duplicate also costs one call. The transactions of a
request run concurrently, within a limit for the whole process.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.clock import rfc3339_from_ms
from sandyard.kit.concurrency.parallel import for_each
from sandyard.kit.dynamo.client import ConditionFailedError, TransactionRefusedError
from sandyard.kit.dynamo.transitions import DynamoTransitions
from sandyard.kit.dynamo.values import Item
from sandyard.kit.ids import IdMaker
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor
from sandyard.telemetry.model import (
    Bucket,
    Device,
    DeviceOrder,
    Reading,
    Retention,
    Stored,
    TimeRange,
    marker_expires_at,
    whole_second,
)
from sandyard.telemetry.stores.buckets import Buckets
from sandyard.telemetry.stores.dynamo_items import (
    device_item,
    device_of,
    marker_item,
    page_by_gsi1,
    reading_item,
    reading_of,
    sensors_of,
    ts_batch,
)
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables

PARALLEL_TRANSACTIONS = 64
_LAST_OF_A_MILLISECOND = "\uffff"


class DynamoTelemetryStore:
    def __init__(
        self, tables: TelemetryTables, *, retention: Retention, make_intake_id: IdMaker
    ) -> None:
        self._tables = tables
        self._retention = retention
        self._make_intake_id = make_intake_id
        self._slots = asyncio.Semaphore(PARALLEL_TRANSACTIONS)
        self._transitions = DynamoTransitions(
            tables.devices, tables.events, key="hardware_id", item_of=device_item
        )

    async def find_devices(self, hardware_ids: Collection[str]) -> Mapping[str, Device]:
        items = await self._tables.devices.get_many(
            [{"hardware_id": each} for each in hardware_ids]
        )
        return {item["hardware_id"]: device_of(item) for item in items}

    async def insert_readings(
        self, readings: Sequence[Reading], *, devices: Mapping[str, Device], now_ms: int
    ) -> Mapping[str, Stored]:
        intake_id, seen_at = self._make_intake_id(), whole_second(now_ms)

        async def insert_one(reading: Reading) -> Stored:
            marker = marker_item(
                reading,
                intake_id=intake_id,
                received_at=now_ms,
                expires_at=marker_expires_at(now_ms),
            )
            return await self._insert_one(reading, devices[reading.hardware_id], marker)

        async def see(hardware_id: str) -> None:
            await self.mark_seen(hardware_id, seen_at=seen_at)

        stored = await for_each(readings, insert_one, slots=self._slots)
        seen = [each for each, device in devices.items() if device.last_seen_at < seen_at]
        await for_each(seen, see, slots=self._slots)
        return {reading.batch_id: each for reading, each in zip(readings, stored, strict=True)}

    async def _insert_one(self, reading: Reading, device: Device, marker: Item) -> Stored:
        item = reading_item(
            reading, device, expires_at=self._retention.expires_at(reading.timestamp_ms)
        )
        try:
            await self._tables.markers.transact(
                self._tables.markers.put_action(marker, condition="attribute_not_exists(batch_id)"),
                self._tables.readings.put_action(item, condition="attribute_not_exists(ts_batch)"),
            )
        except TransactionRefusedError as refused:
            stored_marker, stored_reading = (reason.item for reason in refused.reasons)
            return _existing(stored_marker or {}, stored_reading, marker["intake_id"])
        return Stored(reading.content_hash, is_new=True)

    async def mark_seen(self, hardware_id: str, *, seen_at: int) -> None:
        try:
            await self._tables.devices.update(
                {"hardware_id": hardware_id},
                "SET last_seen_at = :seen, gsi1sk = :seen",
                {"seen": rfc3339_from_ms(seen_at)},
                condition="last_seen_at < :seen",
            )
        except ConditionFailedError:
            return

    async def apply(self, transition: Transition[Device]) -> bool:
        return await self._transitions.apply(transition)

    async def all_devices(self) -> AsyncIterator[Sequence[Device]]:
        async for items in self._tables.devices.scan():
            yield [device_of(item) for item in items]

    async def page_of_devices(
        self, *, order: DeviceOrder = DeviceOrder.LAST_SEEN, limit: int, cursor: str | None
    ) -> Page[Device]:
        items, next_cursor = await page_by_gsi1(
            self._tables.devices,
            "devices",
            "hardware_id",
            listing=order.listing,
            limit=limit,
            cursor=cursor,
            forward=order is DeviceOrder.SILENT,
        )
        return Page([device_of(item) for item in items], next_cursor)

    async def page_of_readings(
        self, hardware_id: str, within: TimeRange, *, limit: int, cursor: str | None
    ) -> Page[Reading]:
        listing = f"readings {hardware_id}"
        before: str | None = None
        if cursor is not None:
            match decode_cursor(listing, cursor):
                case [int(timestamp_ms), str(batch_id)]:
                    before = ts_batch(timestamp_ms, batch_id)
                case _:
                    raise InvalidCursorError
        found: list[Item] = []
        async for items in self._pages(
            hardware_id, within, before=before, forward=False, limit=limit + 2
        ):
            found += [item for item in items if item["ts_batch"] != before]
            if len(found) > limit:
                break
        readings = [reading_of(item) for item in found[:limit]]
        if len(found) <= limit:
            return Page(readings, None)
        last = readings[-1]
        return Page(readings, encode_cursor(listing, [last.timestamp_ms, last.batch_id]))

    async def readings(
        self, hardware_id: str, within: TimeRange
    ) -> AsyncIterator[Sequence[Reading]]:
        async for items in self._pages(hardware_id, within):
            if items:
                yield [reading_of(item) for item in items]

    async def series(
        self, hardware_id: str, metric: str, within: TimeRange, *, bucket_ms: int
    ) -> Sequence[Bucket]:
        buckets = Buckets(bucket_ms)
        async for items in self._pages(hardware_id, within):
            for item in items:
                if (value := sensors_of(item).get(metric)) is not None:
                    buckets.add(item["timestamp_ms"], value)
        return buckets.in_order()

    async def _pages(
        self,
        hardware_id: str,
        within: TimeRange,
        *,
        before: str | None = None,
        forward: bool = True,
        limit: int | None = None,
    ) -> AsyncIterator[list[Item]]:
        """Readings as last written; `before` is another inclusive upper bound."""
        first = ts_batch(within.from_ms, "")
        last = ts_batch(within.to_ms, _LAST_OF_A_MILLISECOND)
        last = last if before is None else min(last, before)
        if first > last:
            return
        async for items in self._tables.readings.pages(
            condition="hardware_id = :hardware_id AND ts_batch BETWEEN :first AND :last",
            values={"hardware_id": hardware_id, "first": first, "last": last},
            forward=forward,
            limit=limit,
        ):
            yield items

    async def check(self) -> None:
        await self._tables.check()

    async def close(self) -> None:
        await self._tables.engine.close()


def _existing(marker: Item, reading: Item | None, intake_id: str) -> Stored:
    """The item that refused a reading: its marker or, after that has expired, the reading
    itself."""
    content_hash = marker.get("content_hash")
    if content_hash is None:  # written by another program, or expired
        content_hash = reading_of(reading).content_hash if reading else ""
    # Only this id distinguishes our own earlier attempt, whose response was lost, from a duplicate.
    return Stored(content_hash, is_new=marker.get("intake_id") == intake_id)
