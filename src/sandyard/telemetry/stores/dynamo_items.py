"""Devices, readings, markers and keys as items.

Items have the times of devices, keys and markers as RFC 3339, and `expiration_time`, the engine's
TTL, in epoch seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

from sandyard.kit.clock import ms_from_rfc3339, rfc3339_from_ms
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item
from sandyard.kit.paging import Page, page_up_to, position_in
from sandyard.telemetry.intake import canonical_number
from sandyard.telemetry.model import (
    READING_FIELDS,
    ApiKey,
    Device,
    Marker,
    Number,
    Reading,
    values_of_reading,
)

T = TypeVar("T", Device, ApiKey)

_DEVICE_TIMES = ("first_registered_at", "last_seen_at")
_KEY_TIMES = ("created_at", "last_used_at")


def ts_batch(timestamp_ms: int, batch_id: str) -> str:
    """The sort key: as text it sorts by time."""
    return f"{timestamp_ms:013}#{batch_id}"


def marker_item(reading: Reading, *, intake_id: str, received_at: int, expires_at: int) -> Item:
    marker = Marker(
        reading.batch_id, reading.hardware_id, received_at, reading.content_hash, expires_at // 1000
    )
    return restored_marker_item(marker) | {"intake_id": intake_id}


def marker_of(item: Item) -> Marker:
    return Marker(
        item["batch_id"],
        item["hardware_id"],
        ms_from_rfc3339(item["received_at"]),
        item.get("content_hash", ""),
        item["expiration_time"],
    )


def restored_marker_item(marker: Marker) -> Item:
    return {
        "batch_id": marker.batch_id,
        "hardware_id": marker.hardware_id,
        "received_at": rfc3339_from_ms(marker.received_at),
        "expiration_time": marker.expires_at_sec,
        "content_hash": marker.content_hash,
    }


def reading_item(
    reading: Reading, named: Device | Reading, *, received_at: int | None, expires_at: int
) -> Item:
    """It has the name that the device has now, or that a restored reading had."""
    return {
        **dict(zip(READING_FIELDS, values_of_reading(reading), strict=True)),
        "friendly_name": named.friendly_name,
        "received_at": None if received_at is None else rfc3339_from_ms(received_at),
        "ts_batch": ts_batch(reading.timestamp_ms, reading.batch_id),
        "expiration_time": expires_at // 1000,
    }


def reading_of(item: Item) -> Reading:
    values: dict[str, Any] = {name: item.get(name) for name in READING_FIELDS}
    received_at = item.get("received_at")
    values["received_at"] = received_at and ms_from_rfc3339(received_at)
    return Reading(**values | {"sensors": sensors_of(item)})


def sensors_of(item: Item) -> dict[str, Number]:
    """The numbers in canonical form; the engine may return another one."""
    numbers = ((name, canonical_number(value)) for name, value in item["sensors"].items())
    return {name: number for name, number in numbers if number is not None}


def device_item(device: Device) -> Item:
    item = _item_of(device, _DEVICE_TIMES)
    return item | {"gsi1pk": "devices", "gsi1sk": item["last_seen_at"]}


def device_of(item: Item) -> Device:
    return _entity_of(Device, item, _DEVICE_TIMES)


def key_item(key: ApiKey) -> Item:
    item = _item_of(key, _KEY_TIMES)
    return item | {"gsi1pk": "api_keys", "gsi1sk": item["created_at"]}


def key_of(item: Item) -> ApiKey:
    return _entity_of(ApiKey, item, _KEY_TIMES)


def _item_of(entity: Device | ApiKey, times: Sequence[str]) -> Item:
    item = asdict(entity)
    return item | {name: rfc3339_from_ms(item[name]) for name in times if item[name] is not None}


def _entity_of(kind: type[T], item: Item, times: Sequence[str]) -> T:
    """An absent attribute is None."""
    values: dict[str, Any] = {each.name: item.get(each.name) for each in fields(kind)}
    present = [name for name in times if values[name] is not None]
    return kind(**values | {name: ms_from_rfc3339(item[name]) for name in present})


async def page_by_gsi1(
    table: Table,
    entity_of: Callable[[Item], T],
    partition: str,
    key: str,
    *,
    listing: str,
    limit: int,
    cursor: str | None,
    forward: bool = False,
    search: str | None = None,
) -> Page[T]:
    """A page of the whole table, ordered by `gsi1sk`, latest first by default. A search reads the
    table on until the page is full: the engine can't compare names in any letter case."""
    start: Item | None = None
    if (last := position_in(listing, cursor, str, str)) is not None:
        start = {key: last[1], "gsi1pk": partition, "gsi1sk": last[0]}
    found: list[Item] = []
    async for items in table.pages(
        index="gsi1",
        condition="gsi1pk = :partition",
        values={"partition": partition},
        forward=forward,
        limit=limit + 1 if search is None else None,
        start=start,
    ):
        found += [item for item in items if search is None or _matches(item, key, search)]
        if len(found) > limit:
            break
    page = page_up_to(limit, found, listing, lambda item: [item["gsi1sk"], item[key]])
    return Page([entity_of(item) for item in page.items], page.next_cursor)


def _matches(item: Item, key: str, search: str) -> bool:
    texts = (item[key], item.get("friendly_name") or "")
    return any(search.lower() in text.lower() for text in texts)
