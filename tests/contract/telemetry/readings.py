"""Readings as these tests keep them and read them back."""

from sandyard.kit.paging import Page
from sandyard.telemetry.model import Reading, Stored
from tests.support.telemetry.engines import DEVICE, NOW_MS, Stores

OTHER_BOOT_ID = "550e8400-e29b-41d4-a716-446655440000"


async def keep(stores: Stores, *readings: Reading, now_ms: int = NOW_MS) -> dict[str, Stored]:
    devices = await stores.telemetry.find_devices({each.hardware_id for each in readings})
    return dict(await stores.telemetry.insert_readings(readings, devices=devices, now_ms=now_ms))


async def last_seen(stores: Stores, hardware_id: str = DEVICE) -> int:
    return (await stores.telemetry.find_devices([hardware_id]))[hardware_id].last_seen_at


def times(page: Page[Reading]) -> list[int]:
    return [each.timestamp_ms - NOW_MS for each in page.items]
