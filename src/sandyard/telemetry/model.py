"""Devices, readings and keys, and what may be decided about them without any I/O."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import orjson

MARKER_SECONDS = 30 * 24 * 3600
"""How long the id of a reading is remembered, at the least."""
LAST_USED_EVERY_SEC = 300

EARLIEST_MS = 946_684_800_000
LATEST_MS = 4_102_444_800_000
"""Readings are from the years 2000 to 2099."""

Number = int | float


@dataclass
class Reading:
    """What a device measured at one instant.

    Not frozen, because a hundred are made for a request and freezing doubles what that costs;
    nothing changes one.
    """

    hardware_id: str
    timestamp_ms: int
    batch_id: str
    boot_id: str
    firmware_version: str
    sensors: Mapping[str, Number]
    sensor_status: Mapping[str, str]
    friendly_name: str | None = None
    """The device's name when the reading came in."""
    _content_hash: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def content_hash(self) -> str:
        """Tells this content from any other that might be sent under the same id."""
        if self._content_hash is None:
            self._content_hash = self._hashed()
        return self._content_hash

    def _hashed(self) -> str:
        content = [
            self.hardware_id,
            self.timestamp_ms,
            self.boot_id,
            self.firmware_version,
            self.sensors,
            self.sensor_status,
        ]
        canonical = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return hashlib.blake2b(canonical, digest_size=16).hexdigest()


class RejectionCode(StrEnum):
    """Why a reading is refused for good; the device may drop it."""

    INVALID_READING = "INVALID_READING"
    INVALID_BATCH_ID = "INVALID_BATCH_ID"
    INVALID_HARDWARE_ID = "INVALID_HARDWARE_ID"
    INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
    INVALID_BOOT_ID = "INVALID_BOOT_ID"
    INVALID_FIRMWARE_VERSION = "INVALID_FIRMWARE_VERSION"
    INVALID_SENSORS = "INVALID_SENSORS"
    INVALID_SENSOR_STATUS = "INVALID_SENSOR_STATUS"
    TOO_OLD = "TOO_OLD"
    DEVICE_NOT_REGISTERED = "DEVICE_NOT_REGISTERED"
    BATCH_ID_CONFLICT = "BATCH_ID_CONFLICT"


REJECTIONS: Mapping[RejectionCode, str] = {
    RejectionCode.INVALID_READING: "A reading must be a JSON object.",
    RejectionCode.INVALID_BATCH_ID: "batch_id must be 1 to 256 of A-Z a-z 0-9 _ : . and -.",
    RejectionCode.INVALID_HARDWARE_ID: "hardware_id must be a MAC in upper case, with colons.",
    RejectionCode.INVALID_TIMESTAMP: "timestamp_ms must be epoch milliseconds from 2000 to 2099.",
    RejectionCode.INVALID_BOOT_ID: "boot_id must be a UUID of version 4.",
    RejectionCode.INVALID_FIRMWARE_VERSION: "firmware_version must be 1 to 64 printable ASCII.",
    RejectionCode.INVALID_SENSORS: "sensors must map at most 100 names to numbers up to 9.9e125.",
    RejectionCode.INVALID_SENSOR_STATUS: "sensor_status must map at most 100 names to ok or error.",
    RejectionCode.TOO_OLD: "The reading is older than readings are kept.",
    RejectionCode.DEVICE_NOT_REGISTERED: "The device has not registered. Register, then send anew.",
    RejectionCode.BATCH_ID_CONFLICT: "Another reading was stored under this batch_id.",
}


@dataclass(frozen=True, slots=True)
class Rejection:
    index: int
    batch_id: str | None
    code: RejectionCode

    @property
    def message(self) -> str:
        return REJECTIONS[self.code]


@dataclass(frozen=True, slots=True)
class Kept:
    """What stands under a batch id after an attempt to store a reading there."""

    content_hash: str
    is_new: bool


@dataclass(slots=True)
class IntakeReport:
    """Where each reading of a request went; every one of them is in just one of the three."""

    acknowledged: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)


def claims_of(readings: Iterable[Reading]) -> list[Reading]:
    """The first reading of each id; another with the same id may only agree or disagree with it."""
    claims: dict[str, Reading] = {}
    for reading in readings:
        claims.setdefault(reading.batch_id, reading)
    return list(claims.values())


def account_for(
    readings: Iterable[tuple[int, Reading]], kept: Mapping[str, Kept], report: IntakeReport
) -> None:
    """Put each reading into the report, by what stands under its id now."""
    claimed: set[str] = set()
    for index, reading in readings:
        stands = kept[reading.batch_id]
        if stands.content_hash != reading.content_hash:
            code = RejectionCode.BATCH_ID_CONFLICT
            report.rejected.append(Rejection(index, reading.batch_id, code))
        elif stands.is_new and reading.batch_id not in claimed:
            report.acknowledged.append(reading.batch_id)
        else:
            report.duplicates.append(reading.batch_id)
        claimed.add(reading.batch_id)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long readings are kept, counted from their own time."""

    seconds: int

    def oldest_ms(self, now: float) -> int:
        """The time of the oldest reading that has not expired: its window is half-open."""
        return int(now * 1000) - self.seconds * 1000 + 1

    def expires_at(self, timestamp_ms: int) -> int:
        """Epoch seconds, for the engine that collects what has expired."""
        return timestamp_ms // 1000 + self.seconds


@dataclass(frozen=True, slots=True)
class Registration:
    """What a device says of itself at its start."""

    hardware_id: str
    boot_id: str
    firmware_version: str
    capabilities: Mapping[str, object]
    friendly_name: str | None
    """Taken only if the device has no name yet."""


@dataclass(frozen=True, slots=True)
class Device:
    hardware_id: str
    confirmation_id: str
    capabilities: Mapping[str, object]
    first_registered_at: str
    last_seen_at: str
    last_boot_id: str
    firmware_version: str
    friendly_name: str | None


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Epoch milliseconds, both ends included."""

    from_ms: int
    to_ms: int

    def since(self, oldest_ms: int) -> "TimeRange":
        return TimeRange(max(self.from_ms, oldest_ms), self.to_ms)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One metric's values from `start_ms` on, for the length of a bucket."""

    start_ms: int
    min: float
    mean: float
    max: float
    count: int


@dataclass(frozen=True, slots=True)
class ApiKey:
    key_id: str
    api_key_hash: str
    created_at: str
    is_active: bool
    description: str | None
    last_used_at: str | None


def hash_api_key(pepper: str, api_key: str) -> str:
    return hashlib.sha256((pepper + api_key).encode()).hexdigest()
