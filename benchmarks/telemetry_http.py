"""Readings per second over HTTP, in batches of 100, beside the bare driver on the same rows."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import sqlalchemy as sa
from aiodynamo.credentials import Key, StaticCredentials

from benchmarks.load import INSTALL_WRK, Slice, has_wrk
from benchmarks.loops import run
from benchmarks.readings import BATCH, MARKER_COLUMNS, READING_COLUMNS, Batches
from benchmarks.report import Figure, Measured, Say
from benchmarks.telemetry_server import CONNECTIONS, FleetServer, Sent, fleet_server
from sandyard.broker.stores.sql import MIGRATIONS as BROKER_MIGRATIONS
from sandyard.kit.dynamo.client import Dynamo
from sandyard.kit.sql.database import PostgresDatabase, SqliteDatabase
from sandyard.telemetry.model import Device, Reading, marker_expires_at, whole_second
from sandyard.telemetry.stores.dynamo_items import marker_item, reading_item
from sandyard.telemetry.stores.dynamo_tables import TelemetryTables
from sandyard.telemetry.stores.dynamodb import PARALLEL_TRANSACTIONS
from sandyard.telemetry.stores.sql import MIGRATIONS
from sandyard.telemetry.stores.tables import device_readings, processed_batches
from tests.support.storage.engines import (
    AWS_ENVIRONMENT,
    create_database,
    dynamo_server,
    postgres_server,
)

_ROUNDS = 5
_SLICE_SEC = 2
_SLICE_BATCHES = 20_000
"""More than any slice sends, so that each begins with numbers of its own."""
_WARM_UP_SEC = 1
_LEAST_SQL = 0.3
_LEAST_ALONE = 0.5

_DYNAMO_ROUNDS = 4
_DYNAMO_SLICE_SEC = 4
"""Long beside one request: those that are not answered at its end don't count."""
_DYNAMO_WARM_UP_SEC = 3
_DYNAMO_BATCHES = 400
_LEAST_DYNAMO = 0.6

_SQLITE = f"readings over HTTP ÷ bare driver, SQLite, {CONNECTIONS} connections each"
_SQLITE_ALONE = "readings over HTTP ÷ one bare SQLite connection"
_POSTGRES = f"readings over HTTP ÷ bare driver, PostgreSQL, {CONNECTIONS} connections each"
_DYNAMO = f"readings over HTTP ÷ bare transactions, DynamoDB, {PARALLEL_TRANSACTIONS} in flight"
_OURS = "  readings per second, and the server's CPU time for a batch"

WriteBatches = Callable[[int, int], float]
"""Writes so many batches, from the first number on; tells how many it wrote per second."""


def measure(folder: Path, say: Say) -> Measured:
    if not has_wrk():
        say(f"{INSTALL_WRK}\n")  # it stays when the next line comes
        return Measured(
            [Figure.not_measured(line, "no wrk") for line in (_SQLITE, _POSTGRES, _DYNAMO)]
        )
    batches = Batches.of_past_weeks()
    return Measured(
        [
            *_measure_sqlite(folder / "sqlite", batches, say),
            *_measure_postgres(folder / "postgres", batches, say),
            *_measure_dynamodb(folder / "dynamodb", batches, say),
        ],
        f"readings in batches of {BATCH}",
    )


@dataclass(frozen=True, slots=True)
class _Round:
    ours: Slice
    bare: Sequence[float]
    """Batches per second of each bare writer."""

    def ratio(self, writer: int = 0) -> float:
        return self.ours.per_second / self.bare[writer]


def _alternate(
    server: FleetServer, batches: Batches, writers: Sequence[WriteBatches], *, label: str, say: Say
) -> list[_Round]:
    """The server is sent batches for a while, then each writer writes as many of the same: so all
    the tables grow alike, and drift meets all alike. The first round only warms up."""
    rounds: list[_Round] = []
    for number in range(_ROUNDS + 1):
        say(f"readings: {label}, " + (f"round {number} of {_ROUNDS}" if number else "warming up"))
        first = number * _SLICE_BATCHES
        sent = server.send(batches, first=first, seconds=_SLICE_SEC if number else _WARM_UP_SEC)
        if sent.batches >= _SLICE_BATCHES:
            raise RuntimeError(f"{_SLICE_BATCHES:,} batches are too few for this machine")
        rounds.append(_Round(sent.slice, [write(first, sent.batches) for write in writers]))
    return rounds[1:]


def _measure_sqlite(folder: Path, batches: Batches, say: Say) -> list[Figure]:
    folder.mkdir()
    writers = [
        partial(_write_sqlite, run(_sqlite_schema(folder / f"bare-{callers}.db")), callers, batches)
        for callers in (CONNECTIONS, 1)
    ]
    with fleet_server(folder) as server:
        rounds = _alternate(server, batches, writers, label="SQLite", say=say)
    return [
        Figure.at_least(_SQLITE, [each.ratio() for each in rounds], _LEAST_SQL),
        Figure(_OURS, _describe([each.ours for each in rounds])),
        Figure("  bare (WAL, synchronous FULL)", _per_second(rounds, 0)),
        Figure.at_least(_SQLITE_ALONE, [each.ratio(1) for each in rounds], _LEAST_ALONE),
        Figure("  bare, one connection alone", _per_second(rounds, 1)),
    ]


async def _sqlite_schema(path: Path) -> Path:
    database = SqliteDatabase(path, schema=MIGRATIONS.part)
    try:
        await MIGRATIONS.upgrade(database)
    finally:
        await database.close()
    return path


def _write_sqlite(path: Path, callers: int, batches: Batches, first: int, count: int) -> float:
    statements = [
        _multi_row("processed_batches", MARKER_COLUMNS),
        _multi_row("device_readings", READING_COLUMNS),
    ]
    values = [
        [tuple(chain.from_iterable(sorted(rows))) for rows in batches.rows(number)]
        for number in range(first, first + count)
    ]
    left, lock = iter(values), threading.Lock()

    def write_all(connection: sqlite3.Connection) -> None:
        while True:
            with lock:
                batch = next(left, None)
            if batch is None:
                return
            connection.execute("BEGIN IMMEDIATE")
            for statement, rows in zip(statements, batch, strict=True):
                connection.execute(statement, rows)
            connection.execute("COMMIT")

    connections = [_connect(path) for _ in range(callers)]
    threads = [threading.Thread(target=write_all, args=(each,)) for each in connections]
    before = _count(path)
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    for connection in connections:
        connection.close()
    if _count(path) - before != count * BATCH:
        raise RuntimeError("the bare driver did not write every reading")
    return count / seconds


def _multi_row(table: str, columns: Sequence[str]) -> str:
    row = f"({', '.join('?' * len(columns))})"
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([row] * BATCH)}"


def _connect(path: Path) -> sqlite3.Connection:
    """A connection with the settings of the store's own, and patience for its turn."""
    connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    for setting in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "cache_size=-16384",
        "wal_autocheckpoint=8000",
        "secure_delete=ON",
        "mmap_size=268435456",
    ):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _count(path: Path) -> int:
    with closing(_connect(path)) as connection:
        [number] = connection.execute("SELECT count(*) FROM device_readings").fetchone()
    return int(number)


def _measure_postgres(folder: Path, batches: Batches, say: Say) -> list[Figure]:
    say("readings: starting PostgreSQL")
    folder.mkdir()
    with postgres_server(folder / "server", is_durable=True) as server_url:
        ours, bare = (run(_postgres_schema(server_url)) for _ in range(2))
        durability = run(_durability(bare))

        def write(first: int, count: int) -> float:
            return run(_write_postgres(bare, batches, first, count))

        with fleet_server(folder, environment={"DATABASE_URL": ours}) as server:
            rounds = _alternate(server, batches, [write], label="PostgreSQL", say=say)
    return [
        Figure.at_least(_POSTGRES, [each.ratio() for each in rounds], _LEAST_SQL),
        Figure(_OURS, _describe([each.ours for each in rounds])),
        Figure(f"  bare ({durability})", _per_second(rounds, 0)),
    ]


async def _postgres_schema(server_url: str) -> str:
    url = await create_database(server_url)
    database = PostgresDatabase(sa.make_url(url), pool_size=1)
    try:
        for migrations in (BROKER_MIGRATIONS, MIGRATIONS):
            await migrations.upgrade(database)
    finally:
        await database.close()
    return url


async def _durability(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        names = ("fsync", "synchronous_commit")
        settings = [f"{name} {await connection.fetchval(f'SHOW {name}')}" for name in names]
    finally:
        await connection.close()
    return ", ".join(settings)


async def _write_postgres(url: str, batches: Batches, first: int, count: int) -> float:
    statements = [
        _from_arrays(processed_batches, MARKER_COLUMNS),
        _from_arrays(device_readings, READING_COLUMNS),
    ]
    values = [
        [[list(column) for column in zip(*sorted(rows), strict=True)] for rows in both]
        for both in (batches.rows(number) for number in range(first, first + count))
    ]
    left = iter(values)

    async def write_all(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        for batch in left:
            async with connection.transaction():
                for statement, arrays in zip(statements, batch, strict=True):
                    await connection.execute(statement, *arrays)

    connections = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]
    try:
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(write_all(connection))
        return count / (time.perf_counter() - started)
    finally:
        for connection in connections:
            await connection.close()


def _from_arrays(table: sa.Table, columns: Sequence[str]) -> str:
    arrays = ", ".join(
        f"${place}::{table.c[name].type.compile()}[]" for place, name in enumerate(columns, 1)
    )
    return f"INSERT INTO {table.fullname} ({', '.join(columns)}) SELECT * FROM unnest({arrays})"


def _measure_dynamodb(folder: Path, batches: Batches, say: Say) -> list[Figure]:
    """Each slice on an engine of its own, because engines slow down with age."""
    tools = Path(__file__).parents[1] / ".tools"
    if not any(tools.glob("node_modules/@dynoxide/*/dynoxide")):
        return [Figure.not_measured(_DYNAMO, "no engine; `make test` installs it")]
    folder.mkdir()
    ours: list[Slice] = []
    bare: list[Slice] = []
    for number in range(1, _DYNAMO_ROUNDS + 1):
        say(f"readings: DynamoDB, round {number} of {_DYNAMO_ROUNDS}")
        with dynamo_server() as url:
            bare.append(run(_transactions(url, batches)))
        with dynamo_server() as url:
            ours.append(_over_http(url, folder / str(number), batches).slice)
    ratios = [
        each.per_second * BATCH / other.per_second for each, other in zip(ours, bare, strict=True)
    ]
    transactions = median(each.per_second for each in bare)
    cpu_usec = median(each.cpu_usec for each in bare)
    return [
        Figure.at_least(_DYNAMO, ratios, _LEAST_DYNAMO),
        Figure(_OURS, _describe(ours)),
        Figure(
            "  bare transactions, and the client's CPU time for one",
            f"{transactions:,.0f}/s, {cpu_usec:.0f} µs",
        ),
    ]


def _over_http(engine_url: str, folder: Path, batches: Batches) -> Sent:
    folder.mkdir()
    run(_create_tables(engine_url))
    environment = AWS_ENVIRONMENT | {
        "TELEMETRY_STORE": "dynamodb",
        "DDB_ENDPOINT_URL": engine_url,
    }
    with fleet_server(folder, environment=environment) as server:
        server.send(batches, first=0, seconds=_DYNAMO_WARM_UP_SEC)
        return server.send(batches, first=_SLICE_BATCHES, seconds=_DYNAMO_SLICE_SEC)


async def _create_tables(engine_url: str) -> None:
    tables = _open_tables(engine_url)
    try:
        await tables.create()
    finally:
        await tables.engine.close()


async def _transactions(engine_url: str, batches: Batches) -> Slice:
    """As many transactions in flight as the store allows itself, made up beforehand."""
    tables = _open_tables(engine_url)
    readings = chain.from_iterable(batches.readings(number) for number in range(_DYNAMO_BATCHES))
    transactions = iter([_transaction(tables, reading) for reading in readings])
    try:
        await tables.create()
        await _send_for(_DYNAMO_WARM_UP_SEC, tables.engine, transactions)
        return await _send_for(_DYNAMO_SLICE_SEC, tables.engine, transactions)
    finally:
        await tables.engine.close()


def _open_tables(engine_url: str) -> TelemetryTables:
    credentials = StaticCredentials(Key("local", "local"))
    engine = Dynamo(region="us-east-1", endpoint_url=engine_url, credentials=credentials)
    return TelemetryTables(engine)


def _transaction(tables: TelemetryTables, reading: Reading) -> Mapping[str, Any]:
    received_at = int(time.time() * 1000)
    expires_at = marker_expires_at(received_at)
    marker = marker_item(reading, intake_id="bare", received_at=received_at, expires_at=expires_at)
    item = reading_item(reading, _device(reading), received_at=received_at, expires_at=expires_at)
    return {
        "TransactItems": [
            tables.markers.put_action(marker, condition="attribute_not_exists(batch_id)"),
            tables.readings.put_action(item, condition="attribute_not_exists(ts_batch)"),
        ]
    }


def _device(reading: Reading) -> Device:
    now_ms = whole_second(int(time.time() * 1000))
    return Device(
        hardware_id=reading.hardware_id,
        confirmation_id=reading.boot_id,
        capabilities={},
        first_registered_at=now_ms,
        last_seen_at=now_ms,
        last_boot_id=reading.boot_id,
        firmware_version=reading.firmware_version,
        friendly_name=None,
    )


async def _send_for(
    seconds: float, engine: Dynamo, transactions: Iterator[Mapping[str, Any]]
) -> Slice:
    started, cpu_before = time.perf_counter(), time.process_time()
    done = 0

    async def send() -> None:
        nonlocal done
        while time.perf_counter() - started < seconds:
            transaction = next(transactions, None)
            if transaction is None:
                raise RuntimeError(f"{_DYNAMO_BATCHES:,} batches are too few for this machine")
            await engine.call("TransactWriteItems", transaction)
            done += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(PARALLEL_TRANSACTIONS):
            group.create_task(send())
    return Slice(
        per_second=done / (time.perf_counter() - started),
        cpu_usec=(time.process_time() - cpu_before) / done * 1e6,
    )


def _describe(slices: Sequence[Slice]) -> str:
    per_second = median(each.per_second for each in slices) * BATCH
    cpu_usec = median(each.cpu_usec for each in slices)
    return f"{per_second:,.0f}/s, {cpu_usec:,.0f} µs"


def _per_second(rounds: Sequence[_Round], writer: int) -> str:
    return f"{median(each.bare[writer] for each in rounds) * BATCH:,.0f}/s"
