"""Devices and readings on SQLite or PostgreSQL.

The readings of a request travel in one transaction: the markers that are there are found by one
statement, those that are not are inserted by a second, the readings that they stand for by a
third. Of two callers that send an id at once one waits for the other, finds fewer markers inserted
than it sent, and begins again; now it finds the other's.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sandyard.kit.clock import Clock, ms_from_rfc3339, rfc3339_from_ms
from sandyard.kit.errors import UnavailableError
from sandyard.kit.events_sql import EventWriter
from sandyard.kit.migrations import Migrations
from sandyard.kit.paging import Page
from sandyard.kit.sql import Database
from sandyard.kit.sql_batches import BatchInsert, KeyLookup, Prepared
from sandyard.kit.sql_entities import all_entities
from sandyard.kit.sql_paging import page_of
from sandyard.kit.sql_transitions import EntityTable, SqlTransitions
from sandyard.kit.transitions import Transition
from sandyard.telemetry.model import (
    Bucket,
    Device,
    DeviceOrder,
    Reading,
    Retention,
    Stored,
    TimeRange,
    whole_second,
)
from sandyard.telemetry.stores.tables import (
    SCHEMA,
    device_readings,
    devices,
    events,
    processed_batches,
)

DEVICES = EntityTable(Device, devices)
MIGRATIONS = Migrations(SCHEMA, Path(__file__).parent / "migrations")

_PORTION = 1000
_ATTEMPTS = 20
_reading = device_readings.c
_marker = processed_batches.c

_insert_markers = BatchInsert(
    processed_batches,
    ("batch_id", "hardware_id", "received_at", "content_hash", "expiration_time"),
    ignore_existing=True,
)
_find_markers = KeyLookup(processed_batches, "batch_id", ("batch_id", "content_hash"))
_insert_readings = BatchInsert(
    device_readings,
    (
        "hardware_id",
        "timestamp_ms",
        "batch_id",
        "boot_id",
        "firmware_version",
        "friendly_name",
        "sensors",
        "sensor_status",
    ),
    ignore_existing=True,
)
_find_devices = KeyLookup(devices, "hardware_id", devices.c.keys())
_seen_text = sa.type_coerce(devices.c.last_seen_at, sa.String).label("seen_text")
"""What cursors hold."""
_see = Prepared(
    devices.update()
    .where(
        devices.c.hardware_id == sa.bindparam("device"),
        devices.c.last_seen_at < sa.bindparam("seen"),
    )
    .values(last_seen_at=sa.bindparam("seen"))
)


class SqlTelemetryStore:
    def __init__(
        self, database: Database, *, retention: Retention, clock: Clock | None = None
    ) -> None:
        self._database = database
        self._retention = retention
        self._transitions = SqlTransitions(database, [DEVICES], EventWriter(events, clock))
        self._schema_checked = False

    async def find_devices(self, hardware_ids: Collection[str]) -> Mapping[str, Device]:
        def work(connection: sa.Connection) -> Mapping[str, Device]:
            rows = _find_devices.rows(connection, list(hardware_ids))
            return {row[0]: _device_from_driver(*row) for row in rows}

        return await self._database.read(work)

    async def insert_readings(
        self, readings: Sequence[Reading], *, devices: Mapping[str, Device], now_ms: int
    ) -> Mapping[str, Stored]:
        received, seen_at = rfc3339_from_ms(now_ms), whole_second(now_ms)
        # In one order everywhere, so that two requests never wait for each other's ids.
        in_order = sorted(readings, key=lambda reading: reading.batch_id)
        markers = [self._marker(reading, received, now_ms) for reading in in_order]
        rows = [_row(reading, devices[reading.hardware_id]) for reading in in_order]
        seen = sorted(each for each, device in devices.items() if device.last_seen_at < seen_at)
        work = partial(_insert, markers=markers, rows=rows, seen=seen, seen_text=received)
        for _ in range(_ATTEMPTS):
            try:
                return await self._database.write(work)
            except _OvertakenError:
                continue
            except _ReadingIsThereError:
                work = partial(work, look_for_readings=True)
        raise UnavailableError("Others send the same readings over and over. Try again shortly.")

    def _marker(self, reading: Reading, received: str, now_ms: int) -> tuple[Any, ...]:
        at_ms = reading.timestamp_ms
        expires_at = self._retention.marker_expires_with_reading_at(at_ms, now_ms=now_ms)
        return (
            reading.batch_id,
            reading.hardware_id,
            received,
            reading.content_hash,
            expires_at // 1000,
        )

    async def apply(self, transition: Transition[Device]) -> bool:
        try:
            return await self._transitions.apply(transition)
        except IntegrityError:  # another caller registered it first
            return False

    async def mark_seen(self, hardware_id: str, *, seen_at: int) -> None:
        seen = {"device": hardware_id, "seen": rfc3339_from_ms(seen_at)}
        await self._database.write(lambda connection: _see.execute(connection, seen))

    def all_devices(self) -> AsyncIterator[Sequence[Device]]:
        return all_entities(self._database, DEVICES)

    async def page_of_devices(
        self, *, order: DeviceOrder = DeviceOrder.LAST_SEEN, limit: int, cursor: str | None
    ) -> Page[Device]:
        rows, next_cursor = await page_of(
            self._database,
            sa.select(devices, _seen_text),
            (_seen_text, devices.c.hardware_id),
            listing=order.listing,
            limit=limit,
            cursor=cursor,
            descending=order is DeviceOrder.LAST_SEEN,
        )
        return Page([DEVICES.entity_of(row) for row in rows], next_cursor)

    async def page_of_readings(
        self, hardware_id: str, within: TimeRange, *, limit: int, cursor: str | None
    ) -> Page[Reading]:
        rows, next_cursor = await page_of(
            self._database,
            _readings_of(hardware_id, within),
            (_reading.timestamp_ms, _reading.batch_id),
            listing=f"readings {hardware_id}",
            limit=limit,
            cursor=cursor,
        )
        return Page([_reading_of(row) for row in rows], next_cursor)

    async def readings(
        self, hardware_id: str, within: TimeRange
    ) -> AsyncIterator[Sequence[Reading]]:
        order = (_reading.timestamp_ms, _reading.batch_id)
        last = (within.from_ms, "")
        while True:
            statement = (
                _readings_of(hardware_id, TimeRange(last[0], within.to_ms))
                .where(sa.tuple_(*order) > sa.tuple_(*last))
                .order_by(*order)
                .limit(_PORTION)
            )
            portion = await self._database.read(partial(_read, statement=statement))
            if portion:
                yield portion
            if len(portion) < _PORTION:
                return
            last = (portion[-1].timestamp_ms, portion[-1].batch_id)

    async def series(
        self, hardware_id: str, metric: str, within: TimeRange, *, bucket_ms: int
    ) -> Sequence[Bucket]:
        def work(connection: sa.Connection) -> Sequence[Any]:
            value = _metric(connection, metric)
            start = (_reading.timestamp_ms // bucket_ms) * bucket_ms
            statement = (
                sa.select(
                    start.label("start_ms"),
                    sa.func.min(value).label("least"),
                    sa.func.avg(value).label("mean"),
                    sa.func.max(value).label("most"),
                    sa.func.count(value).label("number"),
                )
                .where(*_of(hardware_id, within), value.is_not(None))
                .group_by(sa.literal_column("start_ms"))
                .order_by(sa.literal_column("start_ms"))
            )
            return connection.execute(statement).all()

        rows = await self._database.read(work)
        return [
            Bucket(int(row.start_ms), row.least, row.mean, row.most, row.number) for row in rows
        ]

    async def devices_with_expired(
        self, *, oldest_ms: int, after: str, limit: int
    ) -> Sequence[str]:
        expired = sa.exists().where(
            _reading.hardware_id == devices.c.hardware_id, _reading.timestamp_ms < oldest_ms
        )
        statement = (
            sa.select(devices.c.hardware_id)
            .where(devices.c.hardware_id > after, expired)
            .order_by(devices.c.hardware_id)
            .limit(limit)
        )
        return [row.hardware_id for row in await self._rows(statement)]

    async def remove_expired(self, hardware_id: str, *, oldest_ms: int, limit: int) -> int:
        of_device = (_reading.hardware_id == hardware_id, _reading.timestamp_ms < oldest_ms)
        last = (
            sa.select(_reading.timestamp_ms)
            .where(*of_device)
            .order_by(_reading.timestamp_ms)
            .limit(limit)
            .subquery()
        )
        statement = device_readings.delete().where(
            *of_device,
            _reading.timestamp_ms <= sa.select(sa.func.max(last.c.timestamp_ms)).scalar_subquery(),
        )
        return await self._removed(statement)

    async def remove_markers(self, *, now_ms: int, limit: int) -> int:
        expired = (
            sa.select(_marker.batch_id)
            .where(_marker.expiration_time <= now_ms // 1000)
            .order_by(_marker.expiration_time)
            .limit(limit)
        )
        return await self._removed(
            processed_batches.delete().where(_marker.batch_id.in_(expired.scalar_subquery()))
        )

    async def check(self) -> None:
        await self._database.check()
        if not self._schema_checked:
            await MIGRATIONS.require_head(self._database)
            self._schema_checked = True

    async def close(self) -> None:
        await self._database.close()

    async def _rows(self, statement: sa.Select[Any]) -> Sequence[Any]:
        return await self._database.read(lambda connection: connection.execute(statement).all())

    async def _removed(self, statement: sa.Delete) -> int:
        return await self._database.write(lambda connection: connection.execute(statement).rowcount)


class _OvertakenError(Exception):
    """Another caller inserted one of the ids meanwhile; nothing of this transaction is stored."""


class _ReadingIsThereError(Exception):
    """A reading has outlived its marker; nothing of this transaction is stored."""


def _insert(
    connection: sa.Connection,
    *,
    markers: Sequence[tuple[Any, ...]],
    rows: Sequence[tuple[Any, ...]],
    seen: Sequence[str],
    seen_text: str,
    look_for_readings: bool = False,
) -> Mapping[str, Stored]:
    found = _find_markers.rows(connection, [marker[0] for marker in markers])
    stored = {batch_id: Stored(content_hash, is_new=False) for batch_id, content_hash in found}
    if look_for_readings:
        stored |= _readings_there(connection, [row for row in rows if row[2] not in stored])
    new = [marker for marker in markers if marker[0] not in stored]
    if new:
        if _insert_markers.execute(connection, new).rowcount != len(new):
            raise _OvertakenError
        new_rows = [row for row in rows if row[2] not in stored]
        if _insert_readings.execute(connection, new_rows).rowcount != len(new_rows):
            raise _ReadingIsThereError
        stored |= {marker[0]: Stored(marker[3], is_new=True) for marker in new}
    for device in seen:
        _see.execute(connection, {"device": device, "seen": seen_text})
    return stored


def _readings_there(
    connection: sa.Connection, rows: Sequence[tuple[Any, ...]]
) -> dict[str, Stored]:
    """What stands under the very keys of these readings."""
    keys = sa.tuple_(_reading.hardware_id, _reading.timestamp_ms, _reading.batch_id)
    statement = sa.select(device_readings).where(keys.in_([row[:3] for row in rows]))
    return {
        row.batch_id: Stored(_reading_of(row).content_hash, is_new=False)
        for row in connection.execute(statement)
    }


def _read(connection: sa.Connection, statement: sa.Select[Any]) -> Sequence[Reading]:
    return [_reading_of(row) for row in connection.execute(statement)]


def _of(hardware_id: str, within: TimeRange) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        _reading.hardware_id == hardware_id,
        _reading.timestamp_ms >= within.from_ms,
        _reading.timestamp_ms <= within.to_ms,
    )


def _readings_of(hardware_id: str, within: TimeRange) -> sa.Select[Any]:
    return sa.select(device_readings).where(*_of(hardware_id, within))


def _metric(connection: sa.Connection, metric: str) -> sa.ColumnElement[float]:
    """A sensor's value, or NULL if the reading has none of it."""
    if connection.dialect.name == "sqlite":
        return sa.func.json_extract(_reading.sensors, f"$.{metric}", type_=sa.Float)
    from sqlalchemy.dialects.postgresql import JSON

    return sa.cast(sa.cast(_reading.sensors, JSON).op("->>")(metric), sa.Double)


def _row(reading: Reading, device: Device) -> tuple[Any, ...]:
    return (
        reading.hardware_id,
        reading.timestamp_ms,
        reading.batch_id,
        reading.boot_id,
        reading.firmware_version,
        device.friendly_name,
        orjson.dumps(reading.sensors).decode(),
        orjson.dumps(reading.sensor_status).decode(),
    )


def _reading_of(row: Any) -> Reading:
    return Reading(
        hardware_id=row.hardware_id,
        timestamp_ms=row.timestamp_ms,
        batch_id=row.batch_id,
        boot_id=row.boot_id,
        firmware_version=row.firmware_version,
        sensors=orjson.loads(row.sensors),
        sensor_status=orjson.loads(row.sensor_status),
        friendly_name=row.friendly_name,
    )


def _device_from_driver(
    hardware_id: str,
    confirmation_id: str,
    capabilities: str,
    first_registered_at: str,
    last_seen_at: str,
    *others: Any,
) -> Device:
    """The values are those of the columns, which are in the order of the fields."""
    return Device(
        hardware_id,
        confirmation_id,
        orjson.loads(capabilities),
        ms_from_rfc3339(first_registered_at),
        ms_from_rfc3339(last_seen_at),
        *others,
    )
