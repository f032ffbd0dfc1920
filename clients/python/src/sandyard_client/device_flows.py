"""A device's registration and readings, as flows: each reading is stored exactly once.

A reading gets its id once, before anything else, and the id is derived from its content. So
whatever is sent again, by a retry, after a restart or by a caller that got an error about a full
disk, is the same reading to the server.
"""

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandyard_client.calls import Calls, without_none
from sandyard_client.decoding import decode
from sandyard_client.errors import (
    BufferFullError,
    ConnectionFailedError,
    InvalidError,
    RateLimitedError,
    SandyardClientError,
    UnavailableError,
)
from sandyard_client.models import IntakeAnswer, RegisteredAnswer
from sandyard_client.reading_buffer import DiskFullError, Reading, ReadingBuffer, Rejection
from sandyard_client.steps import Flow, work
from sandyard_client.wire import Credential, Request

BATCH = 100
_AWAY = (ConnectionFailedError, UnavailableError, RateLimitedError)
_CURED = "DEVICE_NOT_REGISTERED"
_TOO_MUCH = frozenset({"BATCH_SIZE_EXCEEDED", "INVALID_REQUEST", "BODY_TOO_LARGE", "HTTP_413"})


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    hardware_id: str
    boot_id: str
    firmware_version: str
    capabilities: Mapping[str, Any] | None = None
    friendly_name: str | None = None

    def registration(self) -> Request:
        wished = {"capabilities": self.capabilities, "friendly_name": self.friendly_name}
        body = {
            "hardware_id": self.hardware_id,
            "boot_id": self.boot_id,
            "firmware_version": self.firmware_version,
            **without_none(wished),
        }
        return _posted("/telemetry/v1/register", body)

    def stamped(self, reading: Reading) -> Reading:
        """The complete reading with its id; a complete one is unchanged."""
        whole = {
            "timestamp_ms": time.time_ns() // 1_000_000,
            "sensor_status": {},
            **reading,
            "hardware_id": reading.get("hardware_id", self.hardware_id),
            "boot_id": reading.get("boot_id", self.boot_id),
            "firmware_version": reading.get("firmware_version", self.firmware_version),
        }
        _require_numbers(whole.get("sensors"))
        return whole if "batch_id" in whole else {**whole, "batch_id": _batch_id(whole)}


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of sending."""

    stored: int = 0
    """Stored durably on the server; now or earlier."""
    waiting: int = 0
    """In the buffer, to be sent next time."""
    rejected: Sequence[Rejection] = field(default_factory=tuple)
    """Rejected permanently by the server; stored separately in the buffer."""
    trouble: SandyardClientError | None = None
    """Why some are still waiting."""


def register(calls: Calls, identity: DeviceIdentity) -> Flow[RegisteredAnswer]:
    """May be repeated at any time; the confirmation stays the same."""
    return decode(RegisteredAnswer, (yield from calls.json(identity.registration())))


def deliver(
    calls: Calls, identity: DeviceIdentity, buffer: ReadingBuffer, readings: Sequence[Reading]
) -> Flow[Delivery]:
    """Buffer the readings, then send all waiting ones. If the disk is full they are sent directly;
    BufferFullError if that fails too, with the readings to send again."""
    stamped = [identity.stamped(each) for each in readings]
    try:
        yield from work(lambda: buffer.add(stamped))
    except DiskFullError as full:
        return (yield from _past_buffer(calls, identity, buffer, stamped, full))
    return (yield from flush(calls, identity, buffer))


def flush(calls: Calls, identity: DeviceIdentity, buffer: ReadingBuffer) -> Flow[Delivery]:
    """Send waiting readings, oldest first. An unavailable server is not an error: `trouble` reports
    it. UnauthorizedError and the like are raised, and the buffer is unchanged."""
    stored = 0
    rejected: list[Rejection] = []
    trouble: SandyardClientError | None = None
    while batch := (yield from work(lambda: buffer.oldest(BATCH))):
        try:
            taken, refused = yield from _sent(calls, identity, batch)
        except _AWAY as error:
            trouble = error
            break
        yield from _settled(buffer, taken, refused)
        stored += len(taken)
        rejected += refused
    return Delivery(stored, (yield from work(lambda: len(buffer))), rejected, trouble)


def _settled(buffer: ReadingBuffer, taken: list[str], refused: list[Rejection]) -> Flow[None]:
    return work(lambda: buffer.settle(taken, refused))


def _past_buffer(
    calls: Calls,
    identity: DeviceIdentity,
    buffer: ReadingBuffer,
    readings: Sequence[Reading],
    full: DiskFullError,
) -> Flow[Delivery]:
    stored = 0
    rejected: list[Rejection] = []
    for start in range(0, len(readings), BATCH):
        try:
            taken, refused = yield from _sent(calls, identity, readings[start : start + BATCH])
        except SandyardClientError as error:
            message = f"The buffer is full ({full}), and the readings could not be sent: {error}"
            raise BufferFullError(message, readings[start:]) from error
        stored += len(taken)
        rejected += refused
    rest = yield from flush(calls, identity, buffer)
    return Delivery(stored + rest.stored, rest.waiting, [*rejected, *rest.rejected], rest.trouble)


def _sent(
    calls: Calls, identity: DeviceIdentity, readings: Sequence[Reading]
) -> Flow[tuple[list[str], list[Rejection]]]:
    """The ids that the server has stored, and what it rejected permanently. An unknown device is
    registered; a request that is too large is halved."""
    try:
        answer = yield from _ask(calls, readings)
    except InvalidError as error:
        if error.code not in _TOO_MUCH and error.status != 413:
            raise
        return (yield from _halved(calls, identity, readings, error))
    if any(each.code == _CURED for each in answer.rejected):
        yield from register(calls, identity)
        answer = yield from _ask(calls, readings)
    refused = [
        Rejection(
            str(readings[each.index]["batch_id"]), each.code, each.message, readings[each.index]
        )
        for each in answer.rejected
    ]
    return [*answer.acknowledged_batch_ids, *answer.duplicate_batch_ids], refused


def _halved(
    calls: Calls, identity: DeviceIdentity, readings: Sequence[Reading], error: InvalidError
) -> Flow[tuple[list[str], list[Rejection]]]:
    if len(readings) == 1:
        [reading] = readings
        return [], [Rejection(str(reading["batch_id"]), error.code, error.message, reading)]
    middle = len(readings) // 2
    taken, refused = yield from _sent(calls, identity, readings[:middle])
    more_taken, more_refused = yield from _sent(calls, identity, readings[middle:])
    return [*taken, *more_taken], [*refused, *more_refused]


def _ask(calls: Calls, readings: Sequence[Reading]) -> Flow[IntakeAnswer]:
    body = {"readings": list(readings)}
    return decode(IntakeAnswer, (yield from calls.json(_posted("/telemetry/v1/data", body))))


def _posted(path: str, body: Any) -> Request:
    return Request("POST", path, Credential.DEVICE, is_repeatable=True, json=body)


def _batch_id(reading: Reading) -> str:
    content = json.dumps(reading, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(content).hexdigest()[:32]
    return f"{reading['hardware_id']}_{reading['timestamp_ms']}_{digest}"


def _require_numbers(sensors: Any) -> None:
    if not isinstance(sensors, Mapping):
        raise ValueError("sensors: must be names with numbers")  # noqa: TRY004 - like the others
    for name, value in sensors.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise ValueError(f"sensors.{name}: must be a finite number")
