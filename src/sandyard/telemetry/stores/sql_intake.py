"""Inserts readings on SQLite or PostgreSQL, each with its marker or not at all.

At first every reading is assumed to be new: one statement inserts the markers of a request, a
second its readings, in one transaction. On SQLite, which has one writer, waiting requests share
both. If fewer rows were inserted than sent, some already existed: the transaction is rolled back,
and each request is retried alone. It then reads the existing markers and inserts the others. If two
callers send an id at once, one waits for the other, inserts fewer markers than it sent, and
retries; then it finds the other's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any

import orjson
import sqlalchemy as sa

from sandyard.kit.clock import rfc3339_from_ms
from sandyard.kit.concurrency.batching import Batcher
from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql.batches import BatchInsert, KeyLookup, Prepared
from sandyard.kit.sql.database import Database
from sandyard.telemetry.model import (
    READING_FIELDS,
    Device,
    Marker,
    Reading,
    Retention,
    Stored,
    whole_second,
)
from sandyard.telemetry.stores.tables import device_readings, devices, processed_batches

_ATTEMPTS = 20
_BATCH_ID = READING_FIELDS.index("batch_id")
_TOGETHER = 16
_reading = device_readings.c

_insert_markers = BatchInsert(
    processed_batches,
    ("batch_id", "hardware_id", "received_at", "content_hash", "expiration_time"),
    ignore_existing=True,
)
_find_markers = KeyLookup(processed_batches, "batch_id", ("batch_id", "content_hash"))
_insert_readings = BatchInsert(device_readings, READING_FIELDS, ignore_existing=True)
_see = Prepared(
    devices.update()
    .where(
        devices.c.hardware_id == sa.bindparam("device"),
        devices.c.last_seen_at < sa.bindparam("seen"),
    )
    .values(last_seen_at=sa.bindparam("seen"))
)

_Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Request:
    """The rows of one request, ordered by id."""

    markers: Sequence[_Row]
    rows: Sequence[_Row]
    seen: Sequence[str]
    seen_text: str

    def all_new(self) -> dict[str, Stored]:
        return {marker[0]: Stored(marker[3], is_new=True) for marker in self.markers}

    def without(self, there: Mapping[str, Stored]) -> "_Request":
        markers = [marker for marker in self.markers if marker[0] not in there]
        rows = [row for row in self.rows if row[_BATCH_ID] not in there]
        return _Request(markers, rows, self.seen, self.seen_text)


class SqlIntake:
    def __init__(self, database: Database, *, retention: Retention) -> None:
        self._database = database
        self._retention = retention
        self._waiting: Batcher[_Request, None] = Batcher(
            self._insert_together, key=id, parallel=1, max_size=_TOGETHER
        )

    async def insert(
        self, readings: Sequence[Reading], *, devices: Mapping[str, Device], now_ms: int
    ) -> Mapping[str, Stored]:
        """See `insert_readings` of the port."""
        request = self._request(readings, devices, now_ms)
        try:
            if self._database.concurrent_writers:
                await self._insert_together([request])
            else:
                await self._waiting.submit(request)
        except _SomeAreThereError:
            return await self._insert_missing(request)
        return request.all_new()

    async def drain(self) -> None:
        await self._waiting.drain()

    def _request(
        self, readings: Sequence[Reading], devices: Mapping[str, Device], now_ms: int
    ) -> _Request:
        received, seen_at = rfc3339_from_ms(now_ms), whole_second(now_ms)
        # All requests use the same order, so that they never deadlock.
        in_order = sorted(readings, key=attrgetter("batch_id"))
        return _Request(
            [self._marker(reading, received, now_ms) for reading in in_order],
            [_row(each, devices[each.hardware_id].friendly_name, received) for each in in_order],
            sorted(each for each, device in devices.items() if device.last_seen_at < seen_at),
            received,
        )

    def _marker(self, reading: Reading, received: str, now_ms: int) -> _Row:
        at_ms = reading.timestamp_ms
        expires_at = self._retention.marker_expires_with_reading_at(at_ms, now_ms=now_ms)
        return (
            reading.batch_id,
            reading.hardware_id,
            received,
            reading.content_hash,
            expires_at // 1000,
        )

    async def _insert_together(self, requests: Sequence[_Request]) -> Sequence[None]:
        await self._database.write(partial(_insert_new, requests=requests))
        return [None] * len(requests)

    async def _insert_missing(self, request: _Request) -> Mapping[str, Stored]:
        work = partial(_insert_missing, request=request)
        for _ in range(_ATTEMPTS):
            try:
                return await self._database.write(work)
            except _ReadingIsThereError:
                work = partial(work, look_for_readings=True)
            except _SomeAreThereError:
                continue
        raise UnavailableError(
            "Other requests send the same readings at the same time. Try again shortly."
        )


class _SomeAreThereError(Exception):
    """Markers or readings are there that were taken for new; nothing of this transaction is
    stored."""


class _ReadingIsThereError(_SomeAreThereError):
    """A reading has outlived its marker; nothing of this transaction is stored."""


def mark_seen(connection: sa.Connection, hardware_id: str, seen_text: str) -> None:
    """`last_seen_at` never decreases."""
    _see.execute(connection, {"device": hardware_id, "seen": seen_text})


def _insert_new(connection: sa.Connection, *, requests: Sequence[_Request]) -> None:
    markers = list(chain.from_iterable(request.markers for request in requests))
    if _insert_markers.insert(connection, markers) != len(markers):
        raise _SomeAreThereError
    rows = list(chain.from_iterable(request.rows for request in requests))
    if _insert_readings.insert(connection, rows) != len(rows):
        raise _ReadingIsThereError
    for request in requests:
        for device in request.seen:
            mark_seen(connection, device, request.seen_text)


def _insert_missing(
    connection: sa.Connection, *, request: _Request, look_for_readings: bool = False
) -> Mapping[str, Stored]:
    found = _find_markers.rows(connection, [marker[0] for marker in request.markers])
    there = {batch_id: Stored(content_hash, is_new=False) for batch_id, content_hash in found}
    if look_for_readings:
        there |= _readings_there(connection, request.without(there).rows)
    missing = request.without(there)
    _insert_new(connection, requests=[missing])
    return there | missing.all_new()


def _readings_there(connection: sa.Connection, rows: Sequence[_Row]) -> dict[str, Stored]:
    columns = sa.tuple_(_reading.hardware_id, _reading.timestamp_ms, _reading.batch_id)
    keys = [(*row[:2], row[_BATCH_ID]) for row in rows]
    statement = sa.select(device_readings).where(columns.in_(keys))
    return {
        row.batch_id: Stored(reading_of(row).content_hash, is_new=False)
        for row in connection.execute(statement)
    }


def restore_readings(connection: sa.Connection, *, readings: Sequence[Reading]) -> None:
    rows = [
        _row(
            each,
            each.friendly_name,
            rfc3339_from_ms(each.received_at) if each.received_at else None,
        )
        for each in readings
    ]
    _insert_readings.insert(connection, rows)


def restore_markers(connection: sa.Connection, *, markers: Sequence[Marker]) -> None:
    rows = [
        (batch_id, hardware_id, rfc3339_from_ms(received_at), content_hash, expires_at_sec)
        for batch_id, hardware_id, received_at, content_hash, expires_at_sec in markers
    ]
    _insert_markers.insert(connection, rows)


def _row(reading: Reading, friendly_name: str | None, received: str | None) -> _Row:
    return (
        reading.hardware_id,
        reading.timestamp_ms,
        received,
        reading.batch_id,
        reading.boot_id,
        reading.firmware_version,
        friendly_name,
        orjson.dumps(reading.sensors).decode(),
        orjson.dumps(reading.sensor_status).decode(),
    )


def reading_of(row: Any) -> Reading:
    values = dict(zip(READING_FIELDS, row, strict=True))
    texts = ("sensors", "sensor_status")
    return Reading(**values | {name: orjson.loads(values[name]) for name in texts})
