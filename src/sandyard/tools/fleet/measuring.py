"""A simulated board, and the readings that it has measured before sending."""

import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

Reading = Mapping[str, Any]
"""A reading as in the API, so that measured and stored readings can be compared."""

_LONGEST_MS = 3 * 24 * 3600 * 1000
"""The maximum age of a board's readings: well within every server's retention."""
_INTERVALS_MS = (60_000, 300_000, 3_600_000)


@dataclass(frozen=True, slots=True)
class Boot:
    boot_id: str
    firmware_version: str


@dataclass(frozen=True, slots=True)
class Measured:
    """A board with all of its readings, ordered by time; it boots twice."""

    hardware_id: str
    friendly_name: str | None
    boots: tuple[Boot, Boot]
    readings: Mapping[str, Reading]
    """By batch id."""

    def registration(self, boot: Boot) -> dict[str, Any]:
        return {
            "hardware_id": self.hardware_id,
            "boot_id": boot.boot_id,
            "firmware_version": boot.firmware_version,
            "capabilities": {
                "sensors": ["bme280", "soil_moisture"],
                "features": {"offline_buffering": True},
            },
            "friendly_name": self.friendly_name,
        }


def new_hardware_id() -> str:
    """An unused MAC address: random, unicast, locally administered."""
    first, *others = secrets.token_bytes(6)
    return ":".join(f"{byte:02X}" for byte in ((first | 0x02) & 0xFE, *others))


def measure(hardware_id: str, *, count: int, until_ms: int, rng: Random) -> Measured:
    """A board with this many readings, the last at `until_ms` or just before."""
    boots = (Boot(_uuid4(rng), "1.0.16"), Boot(_uuid4(rng), "1.1.0"))
    friendly_name = f"board-{hardware_id[-5:]}" if rng.random() < 0.5 else None
    reboot_at = rng.randrange(count)
    times = _times(count, until_ms=until_ms, rng=rng)
    readings: dict[str, Reading] = {}
    for number, (before, timestamp_ms) in enumerate(pairwise(times)):
        boot = boots[number >= reboot_at]
        batch_id = f"{hardware_id}_{boot.boot_id}_{before}_{timestamp_ms}"
        sensors, status = _sensors(rng)
        readings[batch_id] = {
            "hardware_id": hardware_id,
            "timestamp_ms": timestamp_ms,
            "batch_id": batch_id,
            "boot_id": boot.boot_id,
            "firmware_version": boot.firmware_version,
            "friendly_name": friendly_name,
            "sensors": sensors,
            "sensor_status": status,
        }
    return Measured(hardware_id, friendly_name, boots, readings)


def _times(count: int, *, until_ms: int, rng: Random) -> list[int]:
    """The time of the start and of each reading; occasionally two share a millisecond."""
    interval_ms = max(1, min(rng.choice(_INTERVALS_MS), _LONGEST_MS // count))
    times = [until_ms - count * interval_ms + step * interval_ms for step in range(count + 1)]
    for number in range(2, count + 1, 2):
        if rng.random() < 0.05:
            times[number] = times[number - 1]
    return times


def _sensors(rng: Random) -> tuple[dict[str, float], dict[str, str]]:
    """Values as boards send them: rounded or not, whole, negative, or none from a broken sensor."""
    sensors: dict[str, float] = {
        "bme280_temp_c": round(rng.gauss(12, 15), 1),
        "pressure_hpa": rng.gauss(1013, 9),
    }
    status = {"bme280": "ok", "soil_moisture": "ok" if rng.random() < 0.9 else "error"}
    if status["soil_moisture"] == "ok":
        sensors["soil_moisture_pct"] = rng.randrange(101)
    return sensors, status


def _uuid4(rng: Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
