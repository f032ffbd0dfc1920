"""Devices, readings, markers and keys as items."""

from dataclasses import asdict

from sandyard.kit.dynamo_items import Table
from sandyard.kit.dynamo_values import Item
from sandyard.kit.paging import InvalidCursorError, decode_cursor, encode_cursor
from sandyard.telemetry.intake import canonical_number
from sandyard.telemetry.model import ApiKey, Device, Number, Reading


def ts_batch(timestamp_ms: int, batch_id: str) -> str:
    """The sort key: as text it sorts as the times do."""
    return f"{timestamp_ms:013}#{batch_id}"


def marker_item(
    reading: Reading, *, intake_id: str, received_at: str, expiration_time: int
) -> Item:
    return {
        "batch_id": reading.batch_id,
        "hardware_id": reading.hardware_id,
        "received_at": received_at,
        "expiration_time": expiration_time,
        "content_hash": reading.content_hash,
        "intake_id": intake_id,
    }


def reading_item(reading: Reading, device: Device, *, expiration_time: int) -> Item:
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
        "expiration_time": expiration_time,
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
    """The numbers in the form in which they were kept; the engine may write them out."""
    numbers = ((name, canonical_number(value)) for name, value in item["sensors"].items())
    return {name: number for name, number in numbers if number is not None}


def device_item(device: Device) -> Item:
    return asdict(device) | {"gsi1pk": "devices", "gsi1sk": device.last_seen_at}


def device_of(item: Item) -> Device:
    return Device(
        hardware_id=item["hardware_id"],
        confirmation_id=item["confirmation_id"],
        capabilities=item["capabilities"],
        first_registered_at=item["first_registered_at"],
        last_seen_at=item["last_seen_at"],
        last_boot_id=item["last_boot_id"],
        firmware_version=item["firmware_version"],
        friendly_name=item.get("friendly_name"),
        sequence=item.get("sequence", 0),
    )


def key_item(key: ApiKey) -> Item:
    return asdict(key) | {"gsi1pk": "api_keys", "gsi1sk": key.created_at}


def key_of(item: Item) -> ApiKey:
    return ApiKey(
        key_id=item["key_id"],
        api_key_hash=item["api_key_hash"],
        created_at=item["created_at"],
        is_active=item["is_active"],
        description=item.get("description"),
        last_used_at=item.get("last_used_at"),
        sequence=item.get("sequence", 0),
    )


async def page_by_gsi1(
    table: Table, partition: str, key: str, *, limit: int, cursor: str | None
) -> tuple[list[Item], str | None]:
    """A page of the whole table, the latest by `gsi1sk` first, and the cursor of the next."""
    start: Item | None = None
    if cursor is not None:
        match decode_cursor(partition, cursor):
            case [str(sort), str(name)] if sort and name:
                start = {key: name, "gsi1pk": partition, "gsi1sk": sort}
            case _:
                raise InvalidCursorError
    found: list[Item] = []
    async for items in table.pages(
        index="gsi1",
        condition="gsi1pk = :partition",
        values={"partition": partition},
        forward=False,
        limit=limit + 1,
        start=start,
    ):
        found += items
        if len(found) > limit:
            break
    if len(found) <= limit:
        return found, None
    last = found[limit - 1]
    return found[:limit], encode_cursor(partition, [last["gsi1sk"], last[key]])
