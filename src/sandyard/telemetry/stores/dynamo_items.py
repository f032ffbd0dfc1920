"""Devices, readings, markers and keys as items.

Items have the times of devices, keys and markers as RFC 3339, and `expiration_time`, the engine's
TTL, in epoch seconds.
"""

from dataclasses import asdict

from sandyard.kit.clock import ms_from_rfc3339, rfc3339_from_ms
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item
from sandyard.kit.paging import InvalidCursorError, decode_cursor, encode_cursor
from sandyard.telemetry.intake import canonical_number
from sandyard.telemetry.model import ApiKey, Device, Number, Reading


def ts_batch(timestamp_ms: int, batch_id: str) -> str:
    """The sort key: as text it sorts by time."""
    return f"{timestamp_ms:013}#{batch_id}"


def marker_item(reading: Reading, *, intake_id: str, received_at: int, expires_at: int) -> Item:
    return {
        "batch_id": reading.batch_id,
        "hardware_id": reading.hardware_id,
        "received_at": rfc3339_from_ms(received_at),
        "expiration_time": expires_at // 1000,
        "content_hash": reading.content_hash,
        "intake_id": intake_id,
    }


def reading_item(reading: Reading, device: Device, *, expires_at: int) -> Item:
    return {
        "hardware_id": reading.hardware_id,
        "ts_batch": ts_batch(reading.timestamp_ms, reading.batch_id),
        "timestamp_ms": reading.timestamp_ms,
        "batch_id": reading.batch_id,
        "boot_id": reading.boot_id,
        "firmware_version": reading.firmware_version,
        "friendly_name": device.friendly_name,
        "sensors": reading.sensors,
        "sensor_status": reading.sensor_status,
        "expiration_time": expires_at // 1000,
    }


def reading_of(item: Item) -> Reading:
    return Reading(
        hardware_id=item["hardware_id"],
        timestamp_ms=item["timestamp_ms"],
        batch_id=item["batch_id"],
        boot_id=item["boot_id"],
        firmware_version=item["firmware_version"],
        sensors=sensors_of(item),
        sensor_status=item["sensor_status"],
        friendly_name=item.get("friendly_name"),
    )


def sensors_of(item: Item) -> dict[str, Number]:
    """The numbers in canonical form; the engine may return another one."""
    numbers = ((name, canonical_number(value)) for name, value in item["sensors"].items())
    return {name: number for name, number in numbers if number is not None}


def device_item(device: Device) -> Item:
    seen = rfc3339_from_ms(device.last_seen_at)
    return asdict(device) | {
        "first_registered_at": rfc3339_from_ms(device.first_registered_at),
        "last_seen_at": seen,
        "gsi1pk": "devices",
        "gsi1sk": seen,
    }


def device_of(item: Item) -> Device:
    return Device(
        hardware_id=item["hardware_id"],
        confirmation_id=item["confirmation_id"],
        capabilities=item["capabilities"],
        first_registered_at=ms_from_rfc3339(item["first_registered_at"]),
        last_seen_at=ms_from_rfc3339(item["last_seen_at"]),
        last_boot_id=item["last_boot_id"],
        firmware_version=item["firmware_version"],
        friendly_name=item.get("friendly_name"),
        sequence=item["sequence"],
    )


def key_item(key: ApiKey) -> Item:
    created = rfc3339_from_ms(key.created_at)
    used = None if key.last_used_at is None else rfc3339_from_ms(key.last_used_at)
    times = {"created_at": created, "last_used_at": used}
    return asdict(key) | times | {"gsi1pk": "api_keys", "gsi1sk": created}


def key_of(item: Item) -> ApiKey:
    used = item.get("last_used_at")
    return ApiKey(
        key_id=item["key_id"],
        api_key_hash=item["api_key_hash"],
        created_at=ms_from_rfc3339(item["created_at"]),
        is_active=item["is_active"],
        description=item.get("description"),
        last_used_at=None if used is None else ms_from_rfc3339(used),
        sequence=item["sequence"],
    )


async def page_by_gsi1(
    table: Table,
    partition: str,
    key: str,
    *,
    listing: str,
    limit: int,
    cursor: str | None,
    forward: bool = False,
) -> tuple[list[Item], str | None]:
    """A page of the whole table, ordered by `gsi1sk`, latest first by default, and the next
    cursor."""
    start: Item | None = None
    if cursor is not None:
        match decode_cursor(listing, cursor):
            case [str(sort), str(name)] if sort and name:
                start = {key: name, "gsi1pk": partition, "gsi1sk": sort}
            case _:
                raise InvalidCursorError
    found: list[Item] = []
    async for items in table.pages(
        index="gsi1",
        condition="gsi1pk = :partition",
        values={"partition": partition},
        forward=forward,
        limit=limit + 1,
        start=start,
    ):
        found += items
        if len(found) > limit:
            break
    if len(found) <= limit:
        return found, None
    last = found[limit - 1]
    return found[:limit], encode_cursor(listing, [last["gsi1sk"], last[key]])
