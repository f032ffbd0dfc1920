"""Readings in batches of 100 that are known by a number, as a board sends them and as rows."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from sandyard.kit.clock import rfc3339_from_ms
from sandyard.telemetry.model import Reading, marker_expires_at

BATCH = 100
DEVICES = 100
BOOT_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
FIRMWARE_VERSION = "1.0.16"
EVERY_MS = 5_000

_BLOCK_MS = 1_000_000
"""The stretch of time that is a batch's own; a timestamp ends with its place in there."""
_AGE_SEC = 60 * 24 * 3600
_STATUS = {"bme280": "ok", "ds18b20": "ok", "soil_moisture": "ok"}

MarkerRow = tuple[str, str, str, str, int]
ReadingRow = tuple[str, int, str, str, str, None, str, str]

MARKER_COLUMNS = ("batch_id", "hardware_id", "received_at", "content_hash", "expiration_time")
READING_COLUMNS = (
    "hardware_id",
    "timestamp_ms",
    "batch_id",
    "boot_id",
    "firmware_version",
    "friendly_name",
    "sensors",
    "sensor_status",
)


def hardware_id(device: int) -> str:
    return f"02:00:00:00:00:{device:02X}"


@dataclass(frozen=True, slots=True)
class Batches:
    """Each batch is one device's, the devices take turns, and their time goes on from batch to
    batch, so that no two numbers share an id."""

    first_block: int

    @classmethod
    def of_past_weeks(cls) -> "Batches":
        return cls(int((time.time() - _AGE_SEC) * 1000) // _BLOCK_MS)

    def readings(self, number: int) -> Iterator[Reading]:
        device, block = hardware_id(number % DEVICES), str(self.first_block + number // DEVICES)
        for place in range(BATCH):
            yield Reading(
                hardware_id=device,
                timestamp_ms=int(f"{block}{_in_block(place)}"),
                batch_id=_batch_id(device, block, place),
                boot_id=BOOT_ID,
                firmware_version=FIRMWARE_VERSION,
                sensors=_sensors(place),
                sensor_status=_STATUS,
            )

    def rows(self, number: int) -> tuple[list[MarkerRow], list[ReadingRow]]:
        """What a store writes for a batch; the hash is as long as a real one."""
        now_ms = int(time.time() * 1000)
        received_at, expiration_time = rfc3339_from_ms(now_ms), marker_expires_at(now_ms) // 1000
        markers: list[MarkerRow] = []
        readings: list[ReadingRow] = []
        for place, reading in enumerate(self.readings(number)):
            of_batch = (reading.batch_id, reading.hardware_id, received_at)
            markers.append((*of_batch, f"{number:024x}{place:08x}", expiration_time))
            readings.append(
                (
                    reading.hardware_id,
                    reading.timestamp_ms,
                    reading.batch_id,
                    BOOT_ID,
                    FIRMWARE_VERSION,
                    None,
                    _SENSORS_JSON[place],
                    _STATUS_JSON,
                )
            )
        return markers, readings


def body_template() -> str:
    """A batch as a board sends it, with `@D` for the device and `@B` for the block of time.

    Both are of fixed length, so that every body is as long as any other.
    """
    readings = ",".join(
        f'{{"hardware_id":"@D","timestamp_ms":@B{_in_block(place)},'
        f'"batch_id":"{_batch_id("@D", "@B", place)}","boot_id":"{BOOT_ID}",'
        f'"firmware_version":"{FIRMWARE_VERSION}",'
        f'"sensors":{_SENSORS_JSON[place]},"sensor_status":{_STATUS_JSON}}}'
        for place in range(BATCH)
    )
    return f'{{"readings":[{readings}]}}'


def _in_block(place: int) -> str:
    return f"{place * EVERY_MS:06d}"


def _batch_id(device: str, block: str, place: int) -> str:
    return f"{device}_{BOOT_ID}_{block}{_in_block(place)}_{block}{_in_block(place + 1)}"


def _sensors(place: int) -> dict[str, float]:
    return {
        "bme280_temp_c": 22.5 + place / 128,
        "ds18b20_temp_c": 21.75 + place / 128,
        "humidity_pct": 45.25,
        "pressure_hpa": 1013.25 - place / 64,
        "soil_moisture_pct": 62.3,
    }


_SENSORS_JSON = [orjson.dumps(_sensors(place)).decode() for place in range(BATCH)]
_STATUS_JSON = orjson.dumps(_STATUS).decode()
