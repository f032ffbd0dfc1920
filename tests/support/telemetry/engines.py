"""Telemetry on the real engines, what its devices send, and looks at it from outside."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from aiodynamo.credentials import Key, StaticCredentials
from prometheus_client import CollectorRegistry

from sandyard.kit import ids
from sandyard.kit.changes.events import EventLog
from sandyard.kit.changes.transitions import Cause, change_entity
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.dynamo.client import Dynamo, DynamoPolicy
from sandyard.kit.dynamo.values import Item, wire
from sandyard.kit.sql.database import Database, PostgresDatabase, SqliteDatabase
from sandyard.kit.sql.events import SqlEventLog
from sandyard.telemetry.errors import DeviceBusyError, DeviceNotFoundError
from sandyard.telemetry.intake import validate
from sandyard.telemetry.jobs import RemoveExpired
from sandyard.telemetry.metrics import TelemetryMetrics
from sandyard.telemetry.model import (
    Device,
    IntakeReport,
    Reading,
    Registration,
    Retention,
    TimeRange,
    decide_registration,
    decide_rename,
)
from sandyard.telemetry.ports import ExpiredReadings, KeyStore, TelemetryStore
from sandyard.telemetry.service import Telemetry
from sandyard.telemetry.stores.dynamo_items import reading_item
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables, open_event_log
from sandyard.telemetry.stores.dynamodb import DynamoKeyStore, DynamoTelemetryStore
from sandyard.telemetry.stores.sql import MIGRATIONS, SqlTelemetryStore
from sandyard.telemetry.stores.sql_keys import SqlKeyStore
from sandyard.telemetry.stores.tables import (
    SUBJECTS,
    api_keys,
    events,
    metadata,
    processed_batches,
)
from tests.support.storage.engines import PATIENT, create_migrated, write_migrated

NOW = 1_800_000_000
NOW_MS = NOW * 1000
DAY = 86400
RETENTION_SEC = 90 * DAY
RETENTION = Retention(RETENTION_SEC * 1000)
LONG_BEFORE_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""
EVER = TimeRange(0, 9_999_999_999_999)

DEVICE = "AA:BB:CC:DD:EE:01"
OTHER_DEVICE = "AA:BB:CC:DD:EE:02"
BOOT_ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


@dataclass(frozen=True, slots=True)
class Stores:
    """One replica's stores, and its own client of the engine for looks from outside."""

    telemetry: TelemetryStore
    keys: KeyStore
    log: EventLog
    database: Database | None = None
    tables: TelemetryTables | None = None

    @property
    def expired(self) -> ExpiredReadings:
        assert isinstance(self.telemetry, SqlTelemetryStore)
        return self.telemetry


@asynccontextmanager
async def telemetry_replicas(
    engine: str,
    folder: Path,
    postgres_url: str,
    dynamo_url: str,
    *,
    count: int = 1,
    retention: Retention = RETENTION,
) -> AsyncIterator[list[Stores]]:
    """So many replicas with connections of their own on one empty database of the engine."""
    async with AsyncExitStack() as stack:
        if engine == "dynamodb":
            prefix = table_prefix()
            clients = [
                await stack.enter_async_context(telemetry_tables(dynamo_url, prefix=prefix))
                for _ in range(count)
            ]
            await clients[0].create()
            yield [on_dynamodb(client, retention=retention) for client in clients]
            return
        databases: list[Database]
        if engine == "sqlite":
            assert count == 1, "SQLite serves one process"
            await write_migrated(folder / "telemetry.db", MIGRATIONS)
            databases = [SqliteDatabase(folder / "telemetry.db", schema=MIGRATIONS.part)]
        else:
            url = sa.make_url(await create_postgres(postgres_url))
            databases = [PostgresDatabase(url, pool_size=8) for _ in range(count)]
        for database in databases:
            stack.push_async_callback(database.close)
        yield [on_sql(database, retention=retention) for database in databases]


@asynccontextmanager
async def telemetry_stores(
    engine: str, folder: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[Stores]:
    """Stores on an empty database of the engine, or on empty tables of their own."""
    async with telemetry_replicas(engine, folder, postgres_url, dynamo_url) as [stores]:
        yield stores


async def create_postgres(server_url: str) -> str:
    """A database with Telemetry's schema in the server; gives its URL."""
    return await create_migrated(server_url, MIGRATIONS)


@asynccontextmanager
async def emptied_postgres(url: str) -> AsyncIterator[Stores]:
    """Stores on a database that others had before: making one takes longer than most tests."""
    names = ", ".join(table.fullname for table in metadata.sorted_tables)
    database = PostgresDatabase(sa.make_url(url), pool_size=8)
    try:
        await database.write(lambda connection: connection.execute(sa.text(f"TRUNCATE {names}")))
        yield on_sql(database)
    finally:
        await database.close()


@asynccontextmanager
async def telemetry_tables(
    url: str, *, prefix: str, policy: DynamoPolicy | None = None
) -> AsyncIterator[TelemetryTables]:
    """The four tables, whether they are there or not."""
    engine = Dynamo(
        region="us-east-1",
        endpoint_url=url,
        policy=policy or PATIENT,
        credentials=StaticCredentials(Key("local", "local")),
    )
    try:
        yield TelemetryTables(engine, prefix=prefix)
    finally:
        await engine.close()


def table_prefix() -> str:
    return f"test-{uuid4().hex[:12]}-"


def on_sql(
    database: Database, *, retention: Retention = RETENTION, clock: Clock | None = None
) -> Stores:
    return Stores(
        SqlTelemetryStore(database, retention=retention, clock=clock),
        SqlKeyStore(database, clock=clock),
        SqlEventLog(database, events, part="telemetry", subjects=SUBJECTS),
        database=database,
    )


def on_dynamodb(tables: TelemetryTables, *, retention: Retention = RETENTION) -> Stores:
    store = DynamoTelemetryStore(tables, retention=retention, make_intake_id=ids.holder_id)
    keys = DynamoKeyStore(tables)
    log = open_event_log(tables, store, keys, clock=SystemClock(), retention=timedelta(days=90))
    return Stores(store, keys, log, tables=tables)


def service_on(stores: Stores, clock: Clock, *, retention: Retention = RETENTION) -> Telemetry:
    return Telemetry(
        stores.telemetry,
        clock=clock,
        make_confirmation_id=ids.uuid4,
        metrics=new_metrics(),
        retention=retention,
    )


def retention_job(
    stores: Stores, clock: Clock, *, retention: Retention = RETENTION
) -> RemoveExpired:
    return RemoveExpired(stores.expired, clock=clock, metrics=new_metrics(), retention=retention)


def new_metrics() -> TelemetryMetrics:
    return TelemetryMetrics(CollectorRegistry())


def hardware(number: int) -> str:
    return f"AA:BB:CC:00:{number >> 8:02X}:{number & 255:02X}"


def registration(hardware_id: str = DEVICE, *, name: str | None = None) -> Registration:
    return Registration(
        hardware_id=hardware_id,
        boot_id=BOOT_ID,
        firmware_version="1.0.16",
        capabilities={"sensors": ["bme280"], "features": {"tft_display": True}},
        friendly_name=name,
    )


def raw_reading(number: int = 0, *, hardware_id: str = DEVICE, **changes: Any) -> dict[str, Any]:
    """A good reading as a device sends it; each number has a batch id and a millisecond."""
    return {
        "hardware_id": hardware_id,
        "timestamp_ms": NOW_MS + number,
        "batch_id": f"{hardware_id}_{BOOT_ID}_{number:06}",
        "boot_id": BOOT_ID,
        "firmware_version": "1.0.16",
        "sensors": {"bme280_temp_c": 22.5, "humidity_pct": number},
        "sensor_status": {"bme280": "ok"},
        **changes,
    }


def reading(number: int = 0, *, hardware_id: str = DEVICE, **changes: Any) -> Reading:
    validated = validate(raw_reading(number, hardware_id=hardware_id, **changes), oldest_ms=0)
    assert isinstance(validated, Reading), validated
    return validated


async def register(stores: Stores, *hardware_ids: str) -> dict[str, Device]:
    """The devices, registered long before anything else."""
    return {
        each: await register_on(
            stores.telemetry,
            registration(each),
            confirmation_id=ids.uuid4(),
            at_ms=LONG_BEFORE_MS,
        )
        for each in hardware_ids or (DEVICE,)
    }


async def register_on(
    store: TelemetryStore, said: Registration, *, confirmation_id: str, at_ms: int
) -> Device:
    """A registration at this time, straight on the store."""
    cause = Cause("key:test", at_ms)
    device = await change_entity(
        partial(find_device, store, said.hardware_id),
        lambda found: decide_registration(
            found, said, confirmation_id=confirmation_id, cause=cause
        ),
        store.apply,
        lock=asyncio.Lock(),
        busy=DeviceBusyError,
    )
    await store.mark_seen(said.hardware_id, seen_at=at_ms)
    found = await find_device(store, said.hardware_id)
    assert found is not None
    assert found.confirmation_id == device.confirmation_id
    return found


async def rename_on(store: TelemetryStore, hardware_id: str, name: str | None) -> Device | None:
    """The device with its new name, straight on the store; None if there is no such device."""
    try:
        return await change_entity(
            partial(find_device, store, hardware_id),
            lambda found: decide_rename(found, name, Cause("operator", NOW_MS)),
            store.apply,
            lock=asyncio.Lock(),
            busy=DeviceBusyError,
        )
    except DeviceNotFoundError:
        return None


async def find_device(store: TelemetryStore, hardware_id: str) -> Device | None:
    return (await store.find_devices([hardware_id])).get(hardware_id)


async def fill(stores: Stores, readings: Sequence[Reading], *, now_ms: int = NOW_MS) -> None:
    """Many new readings in little time; on DynamoDB they have no markers."""
    devices = await stores.telemetry.find_devices({each.hardware_id for each in readings})
    if stores.tables is None:
        for start in range(0, len(readings), 1000):
            portion = readings[start : start + 1000]
            kept = await stores.telemetry.insert_readings(portion, devices=devices, now_ms=now_ms)
            assert all(each.is_new for each in kept.values())
        return
    tables = stores.tables
    puts = [
        {
            "PutRequest": {
                "Item": wire(
                    reading_item(
                        each,
                        devices[each.hardware_id],
                        received_at=now_ms,
                        expires_at=RETENTION.expires_at(each.timestamp_ms),
                    )
                )
            }
        }
        for each in readings
    ]
    portions = [puts[start : start + 25] for start in range(0, len(puts), 25)]
    for start in range(0, len(portions), 16):
        await asyncio.gather(
            *(
                tables.engine.call("BatchWriteItem", {"RequestItems": {tables.readings.name: each}})
                for each in portions[start : start + 16]
            )
        )


async def stored(stores: Stores, hardware_id: str = DEVICE) -> list[Reading]:
    """All readings of the device, expired or not, the oldest first."""
    portions = stores.telemetry.readings(hardware_id, EVER)
    return [each async for portion in portions for each in portion]


async def markers(stores: Stores) -> set[str]:
    """The batch ids of all markers."""
    if stores.tables is not None:
        return {item["batch_id"] for item in await items_of(stores.tables, "markers")}
    assert stores.database is not None
    statement = sa.select(processed_batches.c.batch_id)
    rows = await stores.database.read(lambda connection: connection.execute(statement).all())
    return {row.batch_id for row in rows}


async def items_of(tables: TelemetryTables, name: str) -> list[Item]:
    return [item async for page in getattr(tables, name).scan() for item in page]


async def lose_api_keys(stores: Stores) -> None:
    """From here on the engine cannot answer for any API key."""
    if stores.tables is not None:
        tables = stores.tables
        await tables.engine.call("DeleteTable", {"TableName": tables.keys.name})
        return
    assert stores.database is not None
    statement = sa.schema.DropTable(api_keys)
    await stores.database.write(lambda connection: connection.execute(statement))


def check_accounted(raw: Sequence[dict[str, Any]], report: IntakeReport) -> None:
    """Every reading of the request is in the report, and in one place only."""
    indexes = [rejection.index for rejection in report.rejected]
    assert indexes == sorted(set(indexes))
    left = sorted(each["batch_id"] for index, each in enumerate(raw) if index not in indexes)
    assert sorted(report.acknowledged + report.duplicates) == left
    assert len(report.acknowledged) == len(set(report.acknowledged))
    for rejection in report.rejected:
        assert rejection.batch_id in (None, raw[rejection.index]["batch_id"])
