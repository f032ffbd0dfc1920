"""Readings as devices send them, validated one by one: one bad reading never blocks the others."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeGuard

from sandyard.kit.patterns import pattern
from sandyard.telemetry.model import (
    EARLIEST_MS,
    LATEST_MS,
    Number,
    Reading,
    Rejection,
    RejectionCode,
)

HARDWARE_ID = pattern(
    r"^[0-9A-F]{2}(:[0-9A-F]{2}){5}$", "must be a MAC in upper case, such as AA:BB:CC:DD:EE:FF"
)
UUID4 = pattern(
    r"^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-4[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}$",
    "must be a UUID v4",
)
BATCH_ID = pattern(r"^[A-Za-z0-9_:.-]{1,256}$", "must be 1 to 256 letters, digits, _, :, . and -")
NAME = pattern(r"^[a-z0-9_]{1,64}$", "must be 1 to 64 lower-case letters, digits and _")
FIRMWARE_VERSION = pattern(
    r"^[!-~]([ -~]{0,62}[!-~])?$", "must be 1 to 64 ASCII characters, with no space at its ends"
)
STATUSES = ("ok", "error")
_STATUSES = frozenset(STATUSES)
MAX_SENSORS = 100

_SMALLEST, _LARGEST = 1e-130, 9.9e125
"""The magnitudes that every engine can store."""
_EXACT = 2**53


def _matcher(form: str) -> Any:
    return re.compile(form.replace("$", r"\Z")).match


is_hardware_id = _matcher(HARDWARE_ID)
is_uuid4 = _matcher(UUID4)
_is_batch_id = _matcher(BATCH_ID)
_is_name = _matcher(NAME)
_is_firmware_version = _matcher(FIRMWARE_VERSION)


def validate_all(
    raw: Sequence[object], *, oldest_ms: int
) -> tuple[list[tuple[int, Reading]], list[Rejection]]:
    """The valid readings, each with its index in the request, and the rejections."""
    good: list[tuple[int, Reading]] = []
    rejected: list[Rejection] = []
    for index, each in enumerate(raw):
        validated = validate(each, oldest_ms=oldest_ms)
        if isinstance(validated, Reading):
            good.append((index, validated))
        else:
            batch_id = each.get("batch_id") if isinstance(each, dict) else None
            named = batch_id if isinstance(batch_id, str) and _is_batch_id(batch_id) else None
            rejected.append(Rejection(index, named, validated))
    return good, rejected


def validate(raw: object, *, oldest_ms: int) -> Reading | RejectionCode:
    """The reading, or why it is rejected. Unknown fields are left out."""
    if not isinstance(raw, dict):
        return RejectionCode.INVALID_READING
    field: Callable[[str], Any] = raw.get
    batch_id, hardware_id, timestamp_ms = (
        field("batch_id"),
        field("hardware_id"),
        field("timestamp_ms"),
    )
    boot_id, firmware_version = field("boot_id"), field("firmware_version")
    if not (isinstance(batch_id, str) and _is_batch_id(batch_id)):
        return RejectionCode.INVALID_BATCH_ID
    is_time = type(timestamp_ms) is int and EARLIEST_MS <= timestamp_ms < LATEST_MS
    if not (is_time and _is_sender(hardware_id, boot_id, firmware_version)):
        return _first_mistake(hardware_id, boot_id, is_time=is_time)
    sensors = _numbers(field("sensors"))
    if sensors is None:
        return RejectionCode.INVALID_SENSORS
    sensor_status = _statuses(field("sensor_status"))
    if sensor_status is None:
        return RejectionCode.INVALID_SENSOR_STATUS
    if timestamp_ms < oldest_ms:
        return RejectionCode.TOO_OLD
    return Reading(
        hardware_id, timestamp_ms, batch_id, boot_id, firmware_version, sensors, sensor_status
    )


def _is_sender(hardware_id: Any, boot_id: Any, firmware_version: Any) -> bool:
    try:
        _require_sender(hardware_id, boot_id, firmware_version)
    except (TypeError, ValueError):  # for example a list, which is neither a string nor hashable
        return False
    return True


@lru_cache(maxsize=16_384)
def _require_sender(hardware_id: str, boot_id: str, firmware_version: str) -> None:
    """Cached, because a device sends the same values in each reading. Raises for malformed values,
    which are not cached."""
    if not (
        is_hardware_id(hardware_id) and is_uuid4(boot_id) and _is_firmware_version(firmware_version)
    ):
        raise ValueError


def _first_mistake(hardware_id: object, boot_id: object, *, is_time: bool) -> RejectionCode:
    if not (isinstance(hardware_id, str) and is_hardware_id(hardware_id)):
        return RejectionCode.INVALID_HARDWARE_ID
    if not is_time:
        return RejectionCode.INVALID_TIMESTAMP
    if not (isinstance(boot_id, str) and is_uuid4(boot_id)):
        return RejectionCode.INVALID_BOOT_ID
    return RejectionCode.INVALID_FIRMWARE_VERSION


def _numbers(raw: object) -> Mapping[str, Number] | None:
    if not _has_names(raw):
        return None
    for value in raw.values():
        if type(value) is not float or not (value % 1 and _SMALLEST <= value <= _LARGEST):
            return _canonical_numbers(raw)
    return raw


def _canonical_numbers(raw: Mapping[str, object]) -> Mapping[str, Number] | None:
    """The slow path, for anything but positive fractions."""
    numbers: dict[str, Number] = {}
    for name, value in raw.items():
        number = canonical_number(value)
        if number is None:
            return None
        numbers[name] = number
    return numbers


def canonical_number(value: object) -> Number | None:
    """The number in the form that every engine returns: 22.0 is 22, -0.0 is 0, and what a double
    can't hold exactly is rounded to the nearest one. None if it is not a storable number."""
    if type(value) is int:
        if -_EXACT < value < _EXACT:
            return value
        try:
            value = float(value)
        except OverflowError:
            return None
    if type(value) is not float:
        return None
    if value.is_integer() and -_EXACT < value < _EXACT:
        return int(value)
    return value if _SMALLEST <= abs(value) <= _LARGEST else None


def _statuses(raw: object) -> Mapping[str, str] | None:
    if not _has_names(raw):
        return None
    try:
        return raw if _STATUSES.issuperset(raw.values()) else None
    except TypeError:  # for example a list
        return None


def _has_names(raw: object) -> TypeGuard[dict[str, Any]]:
    if not isinstance(raw, dict) or len(raw) > MAX_SENSORS:
        return False
    try:
        _require_names(tuple(raw))
    except ValueError:
        return False
    return True


@lru_cache(maxsize=256)
def _require_names(names: tuple[str, ...]) -> None:
    """Cached, because a device sends the same names in each reading. Raises ValueError for invalid
    names, which are not cached."""
    if not all(_is_name(name) for name in names):
        raise ValueError
