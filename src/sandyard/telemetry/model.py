"""Devices, readings and keys, and the decisions about them, without any I/O.

All times of Telemetry are integers, epoch milliseconds. Stores and schemas convert them.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from statistics import median
from typing import ClassVar, NamedTuple

import orjson

from sandyard.kit.changes.transitions import (
    DATA,
    SECRET,
    TEXT_TIME,
    Cause,
    Transition,
    changed,
    created,
    removed,
)
from sandyard.telemetry.errors import ApiKeyNotFoundError, DeviceNotFoundError

_MARKER_MS = 30 * 24 * 3600 * 1000
LAST_USED_EVERY_MS = 300_000
_SILENT_MS = 3600 * 1000
"""A silence of this length is a gap if the usual interval is unknown."""

EARLIEST_MS = 946_684_800_000
LATEST_MS = 4_102_444_800_000
"""Readings are from the years 2000 to 2099."""

Number = int | float


@dataclass
class Reading:
    """A device's measurements at one instant.

    Not frozen, because a request creates a hundred, and freezing doubles the cost; never changed.
    """

    hardware_id: str
    timestamp_ms: int
    batch_id: str
    boot_id: str
    firmware_version: str
    sensors: Mapping[str, Number]
    sensor_status: Mapping[str, str]
    friendly_name: str | None = None
    """The device's name when the reading arrived."""
    received_at: int | None = field(default=None, compare=False)
    """When it arrived, to the second; unknown of readings that 0.2.0 stored."""
    _content_hash: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def content_hash(self) -> str:
        """Identifies the content, to detect other content under the same batch id."""
        if self._content_hash is None:
            content = _hashed_values(self)
            canonical = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
            self._content_hash = hashlib.blake2b(canonical, digest_size=16).hexdigest()
        return self._content_hash


_hashed_values = attrgetter(
    *("hardware_id", "timestamp_ms", "boot_id", "firmware_version", "sensors", "sensor_status")
)


READING_FIELDS = (
    "hardware_id",
    "timestamp_ms",
    "received_at",
    "batch_id",
    "boot_id",
    "firmware_version",
    "friendly_name",
    "sensors",
    "sensor_status",
)
"""In the order of columns, in tables and exports."""
values_of_reading = attrgetter(*READING_FIELDS)


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


class Marker(NamedTuple):
    """Identifies duplicates of a reading, longer than the reading may exist."""

    batch_id: str
    hardware_id: str
    received_at: int
    content_hash: str
    expires_at_sec: int


class Stored(NamedTuple):
    """What is stored under a batch id after an attempt to insert a reading."""

    content_hash: str
    is_new: bool


@dataclass(slots=True)
class IntakeReport:
    """The outcome of each reading of a request; each is in exactly one of the three."""

    acknowledged: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)


def first_of_each_id(readings: Iterable[Reading]) -> list[Reading]:
    """The first reading of each batch id; others with the same id are compared with it."""
    claims: dict[str, Reading] = {}
    for reading in readings:
        claims.setdefault(reading.batch_id, reading)
    return list(claims.values())


def account_for(
    readings: Iterable[tuple[int, Reading]], stored: Mapping[str, Stored], report: IntakeReport
) -> None:
    """Add each reading to the report, according to what is stored under its id."""
    claimed: set[str] = set()
    for index, reading in readings:
        existing = stored[reading.batch_id]
        if existing.content_hash != reading.content_hash:
            code = RejectionCode.BATCH_ID_CONFLICT
            report.rejected.append(Rejection(index, reading.batch_id, code))
        elif existing.is_new and reading.batch_id not in claimed:
            report.acknowledged.append(reading.batch_id)
        else:
            report.duplicates.append(reading.batch_id)
        claimed.add(reading.batch_id)


def whole_second(at_ms: int) -> int:
    """The times when devices were seen and keys were used are stored to the second."""
    return at_ms // 1000 * 1000


def marker_expires_at(now_ms: int) -> int:
    """When the marker of a reading that arrives now expires. Sufficient where a later duplicate is
    found by the reading's own key, as on DynamoDB."""
    return now_ms + _MARKER_MS


@dataclass(frozen=True, slots=True)
class Retention:
    """How long readings are kept, counted from their own timestamps."""

    duration_ms: int

    def oldest_ms(self, now_ms: int) -> int:
        """The time of the oldest reading that has not expired: the window is half-open."""
        return now_ms - self.duration_ms + 1

    def expires_at(self, timestamp_ms: int) -> int:
        return timestamp_ms + self.duration_ms

    def marker_expires_with_reading_at(self, timestamp_ms: int, *, now_ms: int) -> int:
        """The same where only the marker identifies a duplicate, as on SQL: it is kept at least as
        long as its reading, although its expiry is stored to the second."""
        return max(now_ms + _MARKER_MS, timestamp_ms + self.duration_ms + 1000)


@dataclass(frozen=True, slots=True)
class Registration:
    """What a device sends at its start."""

    hardware_id: str
    boot_id: str
    firmware_version: str
    capabilities: Mapping[str, object]
    friendly_name: str | None
    """Used only if the device has no name yet."""


@dataclass(frozen=True, slots=True)
class Device:
    SUBJECT: ClassVar[str] = "hardware_id"
    OWNER: ClassVar[str | None] = None

    hardware_id: str
    confirmation_id: str
    capabilities: Mapping[str, object]
    first_registered_at: int = field(metadata=TEXT_TIME)
    last_seen_at: int = field(metadata=DATA)
    last_boot_id: str
    firmware_version: str
    friendly_name: str | None
    sequence: int = 0


class DeviceOrder(StrEnum):
    """What a list of devices begins with."""

    LAST_SEEN = "last_seen"
    SILENT = "silent"
    """Those that have been silent for longest."""

    @property
    def listing(self) -> str:
        """The name that cursors are bound to; that of the older order has not changed."""
        return "devices" if self is DeviceOrder.LAST_SEEN else f"devices {self}"


def decide_registration(
    device: Device | None,
    said: Registration,
    *,
    confirmation_id: str,
    cause: Cause,
) -> Transition[Device] | None:
    """A new device with this confirmation id, or the update of a known one, which keeps its
    confirmation id and name. None if nothing changes."""
    if device is None:
        now_ms = whole_second(cause.at_ms)
        new = Device(
            hardware_id=said.hardware_id,
            confirmation_id=confirmation_id,
            capabilities=said.capabilities,
            first_registered_at=now_ms,
            last_seen_at=now_ms,
            last_boot_id=said.boot_id,
            firmware_version=said.firmware_version,
            friendly_name=said.friendly_name,
        )
        return created(new, "device.registered", cause, first=cause.at_ms)
    after = replace(
        device,
        capabilities=said.capabilities,
        last_boot_id=said.boot_id,
        firmware_version=said.firmware_version,
        friendly_name=device.friendly_name or said.friendly_name,
    )
    return None if after == device else changed(device, after, "device.updated", cause)


def decide_deletion(device: Device | None, cause: Cause) -> Transition[Device]:
    if device is None:
        raise DeviceNotFoundError
    return removed(device, "device.deleted", cause)


def decide_rename(
    device: Device | None, friendly_name: str | None, cause: Cause
) -> Transition[Device] | None:
    if device is None:
        raise DeviceNotFoundError
    if device.friendly_name == friendly_name:
        return None
    return changed(device, replace(device, friendly_name=friendly_name), "device.renamed", cause)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Both ends are included."""

    from_ms: int
    to_ms: int

    def since(self, oldest_ms: int) -> "TimeRange":
        return TimeRange(max(self.from_ms, oldest_ms), self.to_ms)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One metric's values in a bucket that starts at `start_ms`."""

    start_ms: int
    min: float
    mean: float
    max: float
    count: int


@dataclass(frozen=True, slots=True)
class SensorValue:
    """A sensor's latest value in a range."""

    name: str
    value: Number
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Gaps:
    """When readings are missing in a range."""

    within: TimeRange
    usual_interval_ms: int | None
    gaps: Sequence[TimeRange]


def find_gaps(times: Sequence[int], within: TimeRange) -> Gaps:
    """`times` are the different times of the range's readings, in order. A gap is an interval of at
    least twice the usual one, which is the median; of an hour if there are fewer than two
    readings. Nothing is missing before the range begins."""
    intervals = [later - earlier for earlier, later in pairwise(times)]
    usual = round(median(intervals)) if intervals else None
    least = 2 * usual if usual else _SILENT_MS
    edges = [within.from_ms, *times, within.to_ms]
    gaps = [TimeRange(begin, end) for begin, end in pairwise(edges) if end - begin >= least]
    return Gaps(within, usual, gaps)


@dataclass(frozen=True, slots=True)
class ApiKey:
    SUBJECT: ClassVar[str] = "key_id"
    OWNER: ClassVar[str | None] = None

    key_id: str
    api_key_hash: str = field(metadata=SECRET)
    created_at: int = field(metadata=TEXT_TIME)
    is_active: bool
    description: str | None
    last_used_at: int | None = field(metadata=DATA)
    sequence: int = 0


def new_api_key(
    *, key_id: str, api_key_hash: str, description: str | None, cause: Cause
) -> Transition[ApiKey]:
    key = ApiKey(
        key_id=key_id,
        api_key_hash=api_key_hash,
        created_at=whole_second(cause.at_ms),
        is_active=True,
        description=description,
        last_used_at=None,
    )
    return created(key, "key.created", cause)


def decide_revocation(key: ApiKey | None, cause: Cause) -> Transition[ApiKey] | None:
    """None if it was already revoked."""
    if key is None:
        raise ApiKeyNotFoundError
    if not key.is_active:
        return None
    return changed(key, replace(key, is_active=False), "key.revoked", cause)


def hash_api_key(pepper: str, api_key: str) -> str:
    return hashlib.sha256((pepper + api_key).encode()).hexdigest()
