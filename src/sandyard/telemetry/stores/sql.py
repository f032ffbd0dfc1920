"""Devices and readings on SQLite or PostgreSQL."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.clock import Clock, ms_from_rfc3339, rfc3339_from_ms
from sandyard.kit.concurrency.batching import Batcher
from sandyard.kit.paging import Page
from sandyard.kit.sql.batches import KeyLookup
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import all_entities, contains, page_of
from sandyard.kit.sql.events import EventWriter
from sandyard.kit.sql.keyset import batches
from sandyard.kit.sql.migrations import Migrations
from sandyard.kit.sql.transitions import EntityTable, SqlTransitions
from sandyard.telemetry import model
from sandyard.telemetry.stores import sql_intake
from sandyard.telemetry.stores.tables import (
    device_readings,
    devices,
    events,
    metadata,
    processed_batches,
)

DEVICES = EntityTable(model.Device, devices)
MIGRATIONS = Migrations(metadata, Path(__file__).parent / "migrations")

_PORTION = 1000
_TIMES_PORTION = 20_000
_LOOKUPS = 2
_LOOKUP_SIZE = 64
"""How many requests share one statement to find their devices."""
_reading = device_readings.c
_marker = processed_batches.c

_find_devices = KeyLookup(devices, "hardware_id", devices.c.keys())
_seen_text = sa.type_coerce(devices.c.last_seen_at, sa.String).label("seen_text")
"""The value in cursors."""


class SqlTelemetryStore:
    def __init__(
        self, database: Database, *, retention: model.Retention, clock: Clock | None = None
    ) -> None:
        self._database = database
        self._intake = sql_intake.SqlIntake(database, retention=retention)
        self._transitions = SqlTransitions(database, [DEVICES], EventWriter(events, clock))
        self._schema_checked = False
        self._device_batches: Batcher[Collection[str], Mapping[str, model.Device]] = Batcher(
            self._find_together, key=id, parallel=_LOOKUPS, max_size=_LOOKUP_SIZE
        )

    async def find_devices(self, hardware_ids: Collection[str]) -> Mapping[str, model.Device]:
        return await self._device_batches.submit(hardware_ids)

    async def _find_together(
        self, requests: Sequence[Collection[str]]
    ) -> Sequence[Mapping[str, model.Device]]:
        wanted = list(set(chain.from_iterable(requests)))

        def work(connection: sa.Connection) -> Sequence[Any]:
            return _find_devices.rows(connection, wanted)

        rows = await self._database.read(work)
        found = {row[0]: _device_from_driver(*row) for row in rows}
        return [{each: found[each] for each in ids if each in found} for ids in requests]

    async def insert_readings(
        self, readings: Sequence[model.Reading], *, devices: Mapping[str, model.Device], now_ms: int
    ) -> Mapping[str, model.Stored]:
        return await self._intake.insert(readings, devices=devices, now_ms=now_ms)

    async def apply(self, transition: Transition[model.Device]) -> bool:
        try:
            return await self._transitions.apply(transition)
        except IntegrityError:  # another caller registered it first
            return False

    async def mark_seen(self, hardware_id: str, *, seen_at: int) -> None:
        text = rfc3339_from_ms(seen_at)
        await self._database.write(
            partial(sql_intake.mark_seen, hardware_id=hardware_id, seen_text=text)
        )

    async def all_readings(self) -> AsyncIterator[Sequence[model.Reading]]:
        async for rows in self._all(device_readings):
            yield [sql_intake.reading_of(row) for row in rows]

    async def all_markers(self) -> AsyncIterator[Sequence[model.Marker]]:
        async for rows in self._all(processed_batches):
            yield [model.Marker(*row) for row in rows]

    def _all(self, table: sa.Table) -> AsyncIterator[Sequence[Any]]:
        return batches(self._database, sa.select(table), *table.primary_key, limit=_PORTION)

    async def restore_readings(self, readings: Sequence[model.Reading]) -> None:
        await self._database.write(partial(sql_intake.restore_readings, readings=readings))

    async def restore_markers(self, markers: Sequence[model.Marker]) -> None:
        await self._database.write(partial(sql_intake.restore_markers, markers=markers))

    def all_devices(self) -> AsyncIterator[Sequence[model.Device]]:
        return all_entities(self._database, DEVICES)

    async def page_of_devices(
        self,
        *,
        order: model.DeviceOrder = model.DeviceOrder.LAST_SEEN,
        search: str | None = None,
        limit: int,
        cursor: str | None,
    ) -> Page[model.Device]:
        statement = sa.select(devices, _seen_text)
        if search is not None:
            statement = statement.where(
                contains(search, devices.c.friendly_name, devices.c.hardware_id)
            )
        rows, next_cursor = await page_of(
            self._database,
            statement,
            (_seen_text, devices.c.hardware_id),
            listing=order.listing,
            limit=limit,
            cursor=cursor,
            descending=order is model.DeviceOrder.LAST_SEEN,
        )
        return Page([DEVICES.entity_of(row) for row in rows], next_cursor)

    async def page_of_readings(
        self, hardware_id: str, within: model.TimeRange, *, limit: int, cursor: str | None
    ) -> Page[model.Reading]:
        rows, next_cursor = await page_of(
            self._database,
            _readings_of(hardware_id, within),
            (_reading.timestamp_ms, _reading.batch_id),
            listing=f"readings {hardware_id}",
            limit=limit,
            cursor=cursor,
        )
        return Page([sql_intake.reading_of(row) for row in rows], next_cursor)

    async def readings(
        self, hardware_id: str, within: model.TimeRange
    ) -> AsyncIterator[Sequence[model.Reading]]:
        order = (_reading.timestamp_ms, _reading.batch_id)
        statement = _readings_of(hardware_id, within)
        async for rows in batches(self._database, statement, *order, limit=_PORTION):
            yield [sql_intake.reading_of(row) for row in rows]

    async def series(
        self, hardware_id: str, metric: str, within: model.TimeRange, *, bucket_ms: int
    ) -> Sequence[model.Bucket]:
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
            model.Bucket(int(row.start_ms), row.least, row.mean, row.most, row.number)
            for row in rows
        ]

    async def remove_readings(self, hardware_id: str, *, limit: int) -> int:
        return await self._database.write(
            partial(_remove_readings, hardware_id=hardware_id, limit=limit)
        )

    async def sensors(
        self, hardware_id: str, within: model.TimeRange
    ) -> Sequence[model.SensorValue]:
        return await self._database.read(
            partial(_read_sensors, hardware_id=hardware_id, within=within)
        )

    async def reading_times(
        self, hardware_id: str, metric: str | None, within: model.TimeRange
    ) -> AsyncIterator[Sequence[int]]:
        while times := await self._database.read(
            partial(_read_times, hardware_id=hardware_id, metric=metric, within=within)
        ):
            yield times
            within = model.TimeRange(times[-1] + 1, within.to_ms)

    async def devices_with_expired(
        self, *, oldest_ms: int, after: str, limit: int
    ) -> Sequence[str]:
        senders = _senders(after)
        expired = sa.exists().where(
            _reading.hardware_id == senders.c.hardware_id, _reading.timestamp_ms < oldest_ms
        )
        statement = sa.select(senders.c.hardware_id).where(expired)
        statement = statement.order_by(senders.c.hardware_id).limit(limit)
        return await self._database.read(lambda connection: connection.scalars(statement).all())

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
        await self._intake.drain()
        await self._database.close()

    async def _removed(self, statement: sa.Delete) -> int:
        return await self._database.write(lambda connection: connection.execute(statement).rowcount)


def _senders(after: str) -> sa.CTE:
    """The devices that have readings, registered or not, each found by one step in the index."""
    first = sa.select(sa.func.min(_reading.hardware_id).label("hardware_id"))
    senders = first.where(_reading.hardware_id > after).cte(recursive=True)
    last, others = senders.c.hardware_id, device_readings.alias().c.hardware_id
    following = sa.select(sa.func.min(others)).where(others > last).scalar_subquery()
    return senders.union_all(sa.select(following).where(last.is_not(None)))


def _remove_readings(connection: sa.Connection, hardware_id: str, limit: int) -> int:
    order = (_reading.timestamp_ms, _reading.batch_id)
    is_own = _reading.hardware_id == hardware_id
    keys = connection.execute(sa.select(*order).where(is_own).order_by(*order).limit(limit)).all()
    batch_ids = [batch_id for _, batch_id in keys]
    connection.execute(
        processed_batches.delete().where(
            _marker.batch_id.in_(batch_ids), _marker.hardware_id == hardware_id
        )
    )
    is_one = sa.tuple_(*order).in_([tuple(key) for key in keys])
    connection.execute(device_readings.delete().where(is_own, is_one))
    return len(keys)


def _read_times(
    connection: sa.Connection, hardware_id: str, metric: str | None, within: model.TimeRange
) -> Sequence[int]:
    statement = sa.select(_reading.timestamp_ms).where(*_of(hardware_id, within))
    if metric is not None:
        statement = statement.where(_metric(connection, metric).is_not(None))
    statement = statement.distinct().order_by(_reading.timestamp_ms).limit(_TIMES_PORTION)
    return connection.scalars(statement).all()


def _read_sensors(
    connection: sa.Connection, hardware_id: str, within: model.TimeRange
) -> Sequence[model.SensorValue]:
    """The engine finds the latest value of each, so that few rows are read from it."""
    if connection.dialect.name == "sqlite":
        return _read_sensors_on_sqlite(connection, hardware_id, within)
    from sqlalchemy.dialects.postgresql import JSON, distinct_on

    sensors = sa.func.json_each_text(sa.cast(_reading.sensors, JSON))
    values = sensors.table_valued("key", "value")
    each = values.c
    rows = connection.execute(
        sa.select(each.key, each.value, _reading.timestamp_ms)
        .select_from(device_readings.join(values, sa.true()))
        .where(*_of(hardware_id, within))
        .ext(distinct_on(each.key))
        .order_by(each.key, _reading.timestamp_ms.desc())
    )
    found = (model.SensorValue(name, orjson.loads(value), at_ms) for name, value, at_ms in rows)
    return sorted(found, key=attrgetter("name"))


def _read_sensors_on_sqlite(
    connection: sa.Connection, hardware_id: str, within: model.TimeRange
) -> Sequence[model.SensorValue]:
    """With `max`, SQLite takes the other columns from the row that has the greatest."""
    sensors = sa.func.json_each(_reading.sensors)
    values = sensors.table_valued("key", "value")
    each = values.c
    rows = connection.execute(
        sa.select(each.key, each.value, sa.func.max(_reading.timestamp_ms))
        .select_from(device_readings.join(values, sa.true()))
        .where(*_of(hardware_id, within))
        .group_by(each.key)
        .order_by(each.key)
    )
    return [model.SensorValue(*row) for row in rows]


def _of(hardware_id: str, within: model.TimeRange) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        _reading.hardware_id == hardware_id,
        _reading.timestamp_ms >= within.from_ms,
        _reading.timestamp_ms <= within.to_ms,
    )


def _readings_of(hardware_id: str, within: model.TimeRange) -> sa.Select[Any]:
    return sa.select(device_readings).where(*_of(hardware_id, within))


def _metric(connection: sa.Connection, metric: str) -> sa.ColumnElement[float]:
    """A sensor's value, or NULL if the reading does not have it."""
    if connection.dialect.name == "sqlite":
        return sa.func.json_extract(_reading.sensors, f"$.{metric}", type_=sa.Float)
    from sqlalchemy.dialects.postgresql import JSON

    return sa.cast(sa.cast(_reading.sensors, JSON).op("->>")(metric), sa.Double)


def _device_from_driver(
    hardware_id: str,
    confirmation_id: str,
    capabilities: str,
    first_registered_at: str,
    last_seen_at: str,
    *others: Any,
) -> model.Device:
    """The values are in the order of the columns, which is that of the fields."""
    return model.Device(
        hardware_id,
        confirmation_id,
        orjson.loads(capabilities),
        ms_from_rfc3339(first_registered_at),
        ms_from_rfc3339(last_seen_at),
        *others,
    )
