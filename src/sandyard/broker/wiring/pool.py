"""Wires the Broker's pool to its engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sandyard.broker.clients.ports import ClientStore
from sandyard.broker.clients.stores.sql import SqlClientStore
from sandyard.broker.delivery.dispatcher import ATTEMPTS_KEPT_SEC
from sandyard.broker.delivery.ports import DeliveryStore
from sandyard.broker.delivery.stores.sql import SqlDeliveryStore
from sandyard.broker.history.ports import HistoryStore
from sandyard.broker.history.stores.sql import SqlHistoryStore
from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.stores import tables
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.kit.changes.events import EventLog
from sandyard.kit.circuits import CircuitStore
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.jobs import JobLeases
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.job_leases import SqlCircuits, SqlJobLeases
from sandyard.kit.sql.migrations import EmbeddedDatabase
from sandyard.settings import Settings
from sandyard.wiring.engines import SqlEngine, open_part_dynamo

if TYPE_CHECKING:  # imported where it is used: most installations don't need it
    from sandyard.broker.stores.dynamo_table import PoolTable


@dataclass(frozen=True, slots=True)
class Pool:
    """The pool on its engine."""

    engine: str
    store: PoolStore
    deliveries: DeliveryStore
    clients: ClientStore
    history: HistoryStore
    leases: JobLeases
    circuits: CircuitStore
    embedded: EmbeddedDatabase | None = None


def open_pool(
    settings: Settings, *, data_dir: Path, clock: Clock, metrics: BrokerMetrics | None = None
) -> Pool:
    if settings.broker.pool_store == "dynamodb":
        return dynamo_pool(open_pool_table(settings, data_dir), settings, clock, metrics)
    sql = SqlEngine(settings, data_dir, MIGRATIONS, tables.jobs, clock)
    return sql_pool(sql.database, sql.embedded)


def sql_pool(database: Database, embedded: EmbeddedDatabase | None = None) -> Pool:
    return Pool(
        database.name,
        SqlPoolStore(database),
        SqlDeliveryStore(database),
        SqlClientStore(database),
        SqlHistoryStore(database),
        SqlJobLeases(database, tables.jobs),
        SqlCircuits(database, tables.circuits),
        embedded,
    )


def dynamo_pool(
    table: "PoolTable", settings: Settings, clock: Clock, metrics: BrokerMetrics | None = None
) -> Pool:
    from sandyard.broker.clients.stores.dynamo import DynamoClientStore
    from sandyard.broker.delivery.stores.dynamo import DynamoDeliveryStore
    from sandyard.broker.history.stores.dynamo import DynamoHistoryStore
    from sandyard.broker.stores.dynamodb import DynamoPoolStore
    from sandyard.kit.dynamo.job_leases import DynamoCircuits, DynamoJobLeases

    store = DynamoPoolStore(
        table,
        clock=clock,
        prefetch_size=settings.broker.k_candidates,
        on_conflict=metrics.conflicts.inc if metrics else lambda: None,
        event_retention=settings.server.event_retention,
    )
    return Pool(
        "dynamodb",
        store,
        DynamoDeliveryStore(table.table, attempts_kept_sec=ATTEMPTS_KEPT_SEC),
        DynamoClientStore(table.table),
        DynamoHistoryStore(table.table),
        DynamoJobLeases(table.table),
        DynamoCircuits(table.table),
    )


def open_pool_table(settings: Settings, data_dir: Path | None = None) -> "PoolTable":
    from sandyard.broker.stores.dynamo_table import PoolTable, TableNames

    dynamo = settings.dynamo
    names = TableNames(
        table=dynamo.ddb_table_name,
        status_index=dynamo.ddb_gsi1_name,
        track_index=dynamo.ddb_gsi2_name,
        idempotency_index=dynamo.ddb_gsi3_name,
        own_events=dynamo.ddb_events_table_name,
    )
    return PoolTable(open_part_dynamo(settings, data_dir, "broker"), names)


@asynccontextmanager
async def opened_pool(settings: Settings, data_dir: Path) -> AsyncIterator[Pool]:
    """The pool, for a command; raises UnavailableError if its engine is not usable."""
    pool = open_pool(settings, data_dir=data_dir, clock=SystemClock())
    try:
        await pool.store.check()
        yield pool
    finally:
        await pool.store.close()


@asynccontextmanager
async def open_broker_log(settings: Settings, data_dir: Path) -> AsyncIterator[EventLog]:
    async with opened_pool(settings, data_dir) as pool:
        yield pool.store.events
