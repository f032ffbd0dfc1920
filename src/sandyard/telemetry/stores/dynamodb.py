"""Devices, readings and API keys on DynamoDB.

A reading and its marker are one transaction, each on condition that it does not exist. A refused
transaction returns the existing item, so a duplicate also costs one call. The transactions of a
request run concurrently, within a limit for the whole process.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from operator import attrgetter

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.clock import rfc3339_from_ms
from sandyard.kit.concurrency.tasks import for_each
from sandyard.kit.dynamo.client import ConditionFailedError, TransactionRefusedError
from sandyard.kit.dynamo.transitions import DynamoTransitions
from sandyard.kit.dynamo.values import Item
from sandyard.kit.ids import IdMaker
from sandyard.kit.paging import Page, page_up_to, position_in
from sandyard.telemetry import model
from sandyard.telemetry.model import ApiKey
from sandyard.telemetry.stores import dynamo_items
from sandyard.telemetry.stores.dynamo_items import key_item, key_of, page_by_gsi1
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables

PARALLEL_TRANSACTIONS = 64
_READING_KEY = ("hardware_id", "ts_batch")
_LAST_OF_A_MILLISECOND = "\uffff"


class _Buckets:
    """Aggregates a series reading by reading, as the engine can't do it itself."""

    def __init__(self, bucket_ms: int) -> None:
        self._bucket_ms = bucket_ms
        self._found: dict[int, tuple[model.Number, model.Number, model.Number, int]] = {}

    def add(self, timestamp_ms: int, value: model.Number) -> None:
        start = timestamp_ms // self._bucket_ms * self._bucket_ms
        least, most, total, number = self._found.get(start, (value, value, 0, 0))
        self._found[start] = (min(least, value), max(most, value), total + value, number + 1)

    def in_order(self) -> list[model.Bucket]:
        return [
            model.Bucket(start, least, total / number, most, number)
            for start, (least, most, total, number) in sorted(self._found.items())
        ]


class DynamoTelemetryStore:
    def __init__(
        self, tables: TelemetryTables, *, retention: model.Retention, make_intake_id: IdMaker
    ) -> None:
        self._tables = tables
        self._retention = retention
        self._make_intake_id = make_intake_id
        self._slots = asyncio.Semaphore(PARALLEL_TRANSACTIONS)
        self._transitions = DynamoTransitions(
            tables.devices, tables.events, key="hardware_id", item_of=dynamo_items.device_item
        )

    async def find_devices(self, hardware_ids: Collection[str]) -> Mapping[str, model.Device]:
        items = await self._tables.devices.get_many(
            [{"hardware_id": each} for each in hardware_ids]
        )
        return {item["hardware_id"]: dynamo_items.device_of(item) for item in items}

    async def insert_readings(
        self, readings: Sequence[model.Reading], *, devices: Mapping[str, model.Device], now_ms: int
    ) -> Mapping[str, model.Stored]:
        intake_id, seen_at = self._make_intake_id(), model.whole_second(now_ms)

        async def insert_one(reading: model.Reading) -> model.Stored:
            marker = dynamo_items.marker_item(
                reading,
                intake_id=intake_id,
                received_at=now_ms,
                expires_at=model.marker_expires_at(now_ms),
            )
            item = dynamo_items.reading_item(
                reading,
                devices[reading.hardware_id],
                received_at=now_ms,
                expires_at=self._retention.expires_at(reading.timestamp_ms),
            )
            return await self._insert_one(reading, item, marker)

        async def see(hardware_id: str) -> None:
            await self.mark_seen(hardware_id, seen_at=seen_at)

        stored = await for_each(readings, insert_one, slots=self._slots)
        seen = [each for each, device in devices.items() if device.last_seen_at < seen_at]
        await for_each(seen, see, slots=self._slots)
        return {reading.batch_id: each for reading, each in zip(readings, stored, strict=True)}

    async def _insert_one(self, reading: model.Reading, item: Item, marker: Item) -> model.Stored:
        try:
            await self._tables.markers.transact(
                self._tables.markers.put_action(marker, condition="attribute_not_exists(batch_id)"),
                self._tables.readings.put_action(item, condition="attribute_not_exists(ts_batch)"),
            )
        except TransactionRefusedError as refused:
            stored_marker, stored_reading = (reason.item for reason in refused.reasons)
            return _existing(stored_marker or {}, stored_reading, marker["intake_id"])
        return model.Stored(reading.content_hash, is_new=True)

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

    async def apply(self, transition: Transition[model.Device]) -> bool:
        return await self._transitions.apply(transition)

    async def all_readings(self) -> AsyncIterator[Sequence[model.Reading]]:
        async for items in self._tables.readings.scan():
            yield [dynamo_items.reading_of(item) for item in items]

    async def all_markers(self) -> AsyncIterator[Sequence[model.Marker]]:
        async for items in self._tables.markers.scan():
            yield [dynamo_items.marker_of(item) for item in items]

    async def restore_readings(self, readings: Sequence[model.Reading]) -> None:
        expires_at = self._retention.expires_at
        await self._tables.readings.put_all(
            [
                dynamo_items.reading_item(
                    each,
                    each,
                    received_at=each.received_at,
                    expires_at=expires_at(each.timestamp_ms),
                )
                for each in readings
            ]
        )

    async def restore_markers(self, markers: Sequence[model.Marker]) -> None:
        await self._tables.markers.put_all(
            [dynamo_items.restored_marker_item(each) for each in markers]
        )

    async def all_devices(self) -> AsyncIterator[Sequence[model.Device]]:
        async for items in self._tables.devices.scan():
            yield [dynamo_items.device_of(item) for item in items]

    async def page_of_devices(
        self,
        *,
        order: model.DeviceOrder = model.DeviceOrder.LAST_SEEN,
        search: str | None = None,
        limit: int,
        cursor: str | None,
    ) -> Page[model.Device]:
        return await dynamo_items.page_by_gsi1(
            self._tables.devices,
            dynamo_items.device_of,
            "devices",
            "hardware_id",
            listing=order.listing,
            limit=limit,
            cursor=cursor,
            forward=order is model.DeviceOrder.SILENT,
            search=search,
        )

    async def page_of_readings(
        self, hardware_id: str, within: model.TimeRange, *, limit: int, cursor: str | None
    ) -> Page[model.Reading]:
        listing = f"readings {hardware_id}"
        last = position_in(listing, cursor, int, str)
        before = None if last is None else dynamo_items.ts_batch(*last)
        found: list[Item] = []
        async for items in self._pages(
            hardware_id, within, before=before, forward=False, limit=limit + 2
        ):
            found += [item for item in items if item["ts_batch"] != before]
            if len(found) > limit:
                break
        readings = [dynamo_items.reading_of(item) for item in found]
        return page_up_to(limit, readings, listing, attrgetter("timestamp_ms", "batch_id"))

    async def readings(
        self, hardware_id: str, within: model.TimeRange
    ) -> AsyncIterator[Sequence[model.Reading]]:
        async for items in self._pages(hardware_id, within):
            if items:
                yield [dynamo_items.reading_of(item) for item in items]

    async def series(
        self, hardware_id: str, metric: str, within: model.TimeRange, *, bucket_ms: int
    ) -> Sequence[model.Bucket]:
        buckets = _Buckets(bucket_ms)
        async for items in self._pages(hardware_id, within):
            for item in items:
                if (value := dynamo_items.sensors_of(item).get(metric)) is not None:
                    buckets.add(item["timestamp_ms"], value)
        return buckets.in_order()

    async def sensors(
        self, hardware_id: str, within: model.TimeRange
    ) -> Sequence[model.SensorValue]:
        latest: dict[str, model.SensorValue] = {}
        async for items in self._pages(hardware_id, within):
            for item in items:
                for name, value in dynamo_items.sensors_of(item).items():
                    latest[name] = model.SensorValue(name, value, item["timestamp_ms"])
        return sorted(latest.values(), key=attrgetter("name"))

    async def remove_readings(self, hardware_id: str, *, limit: int) -> int:
        keys = await self._first_keys(hardware_id, limit)
        await for_each(keys, self._remove_reading, slots=self._slots)
        return len(keys)

    async def _first_keys(self, hardware_id: str, limit: int) -> list[Item]:
        async for items in self._pages(
            hardware_id, model.TimeRange(0, model.LATEST_MS), limit=limit
        ):
            return [{name: item[name] for name in _READING_KEY} for item in items]
        return []

    async def _remove_reading(self, key: Item) -> None:
        _, _, batch_id = key["ts_batch"].partition("#")
        is_own, device = "hardware_id = :device", {"device": key["hardware_id"]}
        no_other = f"attribute_not_exists(batch_id) OR {is_own}"
        markers, readings = self._tables.markers, self._tables.readings
        try:
            await markers.transact(
                markers.delete_action({"batch_id": batch_id}, condition=no_other, values=device),
                readings.delete_action(key, condition=is_own, values=device),
            )
        except TransactionRefusedError:  # the marker is another device's by now
            await readings.delete(key)

    async def reading_times(
        self, hardware_id: str, metric: str | None, within: model.TimeRange
    ) -> AsyncIterator[Sequence[int]]:
        last = None
        async for items in self._pages(hardware_id, within):
            found = (each for each in items if metric is None or metric in each["sensors"])
            times = sorted({each["timestamp_ms"] for each in found} - {last})
            if times:
                yield times
                last = times[-1]

    async def _pages(
        self,
        hardware_id: str,
        within: model.TimeRange,
        *,
        before: str | None = None,
        forward: bool = True,
        limit: int | None = None,
    ) -> AsyncIterator[list[Item]]:
        """Readings as last written; `before` is another inclusive upper bound."""
        first = dynamo_items.ts_batch(within.from_ms, "")
        last = dynamo_items.ts_batch(within.to_ms, _LAST_OF_A_MILLISECOND)
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


def _existing(marker: Item, reading: Item | None, intake_id: str) -> model.Stored:
    """The item that refused a reading: its marker or, after that has expired, the reading
    itself."""
    content_hash = marker.get("content_hash")
    if content_hash is None:  # written by another program, or expired
        content_hash = dynamo_items.reading_of(reading).content_hash if reading else ""
    # Only this id distinguishes our own earlier attempt, whose response was lost, from a duplicate.
    return model.Stored(content_hash, is_new=marker.get("intake_id") == intake_id)


class DynamoKeyStore:
    def __init__(self, tables: TelemetryTables) -> None:
        self._keys = tables.keys
        self._transitions = DynamoTransitions(
            tables.keys, tables.events, key="key_id", item_of=key_item
        )

    async def apply(self, transition: Transition[ApiKey]) -> bool:
        return await self._transitions.apply(transition)

    async def find_key(self, key_id: str) -> ApiKey | None:
        item = await self._keys.get({"key_id": key_id})
        return None if item is None else key_of(item)

    async def find_key_by_hash(self, api_key_hash: str) -> ApiKey | None:
        """The index finds the candidate; a consistent read of the table confirms it."""
        candidates, _, _ = await self._keys.query(
            index="api_key_hash_index",
            condition="api_key_hash = :hash",
            values={"hash": api_key_hash},
        )
        for candidate in candidates:
            item = await self._keys.get({"key_id": candidate["key_id"]})
            if item is not None and item["api_key_hash"] == api_key_hash:
                return key_of(item)
        return None

    async def page_of_keys(self, *, limit: int, cursor: str | None) -> Page[ApiKey]:
        order = (self._keys, key_of, "api_keys", "key_id")
        return await page_by_gsi1(*order, listing="api_keys", limit=limit, cursor=cursor)

    async def all_keys(self) -> AsyncIterator[Sequence[ApiKey]]:
        async for items in self._keys.scan():
            yield [key_of(item) for item in items]

    async def touch_key(self, key_id: str, *, used_at: int, unless_after: int) -> None:
        is_due = "(attribute_not_exists(last_used_at) OR last_used_at <= :due)"
        try:
            await self._keys.update(
                {"key_id": key_id},
                "SET last_used_at = :used",
                {"used": rfc3339_from_ms(used_at), "due": rfc3339_from_ms(unless_after)},
                condition=f"attribute_exists(key_id) AND {is_due}",
            )
        except ConditionFailedError:
            return
