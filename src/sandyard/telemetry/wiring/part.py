"""Telemetry, wired."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from prometheus_client import CollectorRegistry

from sandyard.kit import ids
from sandyard.kit.changes.events import EventLog
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.http.security import BearerGuard
from sandyard.kit.jobs import JobLeases
from sandyard.kit.sql.events import SqlEventLog
from sandyard.kit.sql.job_leases import SqlJobLeases
from sandyard.kit.sql.migrations import EmbeddedDatabase
from sandyard.settings import Settings
from sandyard.telemetry.http.devices import create_device_router
from sandyard.telemetry.http.operators import create_operators_router
from sandyard.telemetry.http.readings import create_readings_router
from sandyard.telemetry.jobs import RemoveExpired
from sandyard.telemetry.keys import ApiKeys
from sandyard.telemetry.metrics import TelemetryMetrics
from sandyard.telemetry.model import Retention
from sandyard.telemetry.ports import ExpiredReadings, KeyStore, TelemetryStore
from sandyard.telemetry.service import Telemetry
from sandyard.telemetry.stores import tables
from sandyard.telemetry.stores.sql import MIGRATIONS, SqlTelemetryStore
from sandyard.telemetry.stores.sql_keys import SqlKeyStore
from sandyard.telemetry.verification import verify
from sandyard.wiring import engines
from sandyard.wiring.job_specs import TelemetryJobSpecs as Specs
from sandyard.wiring.part import Part
from sandyard.wiring.spec import Counting, Verification

if TYPE_CHECKING:  # imported where it is used: most installations don't need it
    from sandyard.telemetry.stores.dynamo_tables import TelemetryTables


@dataclass(frozen=True, slots=True)
class TelemetryStores:
    """Telemetry's stores on their engine, with the jobs that the engine needs."""

    engine: str
    store: TelemetryStore
    keys: KeyStore
    log: EventLog
    leases: JobLeases
    removal: ExpiredReadings | None = None
    """Removes expired readings, if the engine does not do so itself."""
    embedded: EmbeddedDatabase | None = None


class TelemetryPart(Part):
    name: ClassVar[str] = "telemetry"

    def __init__(
        self,
        settings: Settings,
        *,
        data_dir: Path,
        registry: CollectorRegistry,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        metrics = TelemetryMetrics(registry)
        retention = _retention(settings)
        stores = open_stores(settings, data_dir, clock=clock)
        self.engine, self.store = stores.engine, stores.store
        self.events, self.embedded = stores.log, stores.embedded
        self.runner = engines.job_runner(settings, stores.leases, clock)
        self.telemetry = Telemetry(
            stores.store,
            clock=clock,
            make_confirmation_id=ids.uuid4,
            metrics=metrics,
            retention=retention,
        )
        self.keys = ApiKeys(
            stores.keys,
            peppers=settings.secret("api_key_pepper"),
            clock=clock,
            make_key_id=ids.uuid4,
            make_api_key=ids.device_api_key,
        )
        self.schedule = [engines.prune_job(settings, Specs.EVENTS, stores.log, clock)]
        if stores.removal is not None:
            removal = RemoveExpired(
                stores.removal, clock=clock, metrics=metrics, retention=retention
            )
            every = settings.telemetry.retention_interval_sec
            self.schedule.append(Specs.RETENTION.job(every, removal.run, at_start=True))
        admins = BearerGuard(settings.secret("telemetry_admin_token"))
        self.routers = (
            create_device_router(self.telemetry, self.keys),
            create_readings_router(self.telemetry, admins, clock=clock),
            create_operators_router(self.telemetry, self.keys, stores.log, admins),
        )

    async def check(self) -> None:
        await self.store.check()

    async def close_engine(self) -> None:
        await self.store.close()


def open_stores(settings: Settings, data_dir: Path, *, clock: Clock) -> TelemetryStores:
    if settings.telemetry.telemetry_store == "dynamodb":
        return _open_on_dynamodb(settings, data_dir, clock)
    sql = engines.SqlEngine(settings, data_dir, MIGRATIONS, tables.jobs, clock)
    database = sql.database
    store = SqlTelemetryStore(database, retention=_retention(settings), clock=clock)
    return TelemetryStores(
        sql.engine,
        store,
        SqlKeyStore(database, clock=clock),
        SqlEventLog(database, tables.events, part="telemetry", subjects=tables.SUBJECTS),
        SqlJobLeases(database, tables.jobs),
        removal=store,
        embedded=sql.embedded,
    )


def _retention(settings: Settings) -> Retention:
    return Retention(round(settings.telemetry.readings_retention_days * 86400) * 1000)


def _open_on_dynamodb(settings: Settings, data_dir: Path, clock: Clock) -> TelemetryStores:
    from sandyard.kit.dynamo.event_items import job_key
    from sandyard.kit.dynamo.job_leases import DynamoJobLeases
    from sandyard.telemetry.stores.dynamo_tables import open_event_log
    from sandyard.telemetry.stores.dynamodb import DynamoKeyStore, DynamoTelemetryStore

    on_dynamodb = open_telemetry_tables(settings, data_dir)
    store = DynamoTelemetryStore(
        on_dynamodb, retention=_retention(settings), make_intake_id=ids.holder_id
    )
    keys = DynamoKeyStore(on_dynamodb)
    log = open_event_log(
        on_dynamodb, store, keys, clock=clock, retention=settings.server.event_retention
    )
    leases = DynamoJobLeases(on_dynamodb.events.table, key=job_key)
    return TelemetryStores("dynamodb", store, keys, log, leases)


@asynccontextmanager
async def opened_stores(settings: Settings, data_dir: Path) -> AsyncIterator[TelemetryStores]:
    stores = open_stores(settings, data_dir, clock=SystemClock())
    try:
        await stores.store.check()
        yield stores
    finally:
        await stores.store.close()


async def verify_telemetry(settings: Settings, data_dir: Path, counting: Counting) -> Verification:
    async with opened_stores(settings, data_dir) as stores:
        with counting("verify telemetry", None) as progress:
            report = await verify(stores.store, stores.keys, stores.log, progress=progress)
    return engines.verification_of("devices and keys", report)


@asynccontextmanager
async def open_telemetry_log(settings: Settings, data_dir: Path) -> AsyncIterator[EventLog]:
    async with opened_stores(settings, data_dir) as stores:
        yield stores.log


def open_telemetry_tables(settings: Settings, data_dir: Path | None = None) -> "TelemetryTables":
    from sandyard.telemetry.stores.dynamo_tables import TelemetryTables

    return TelemetryTables(
        engines.open_part_dynamo(settings, data_dir, "telemetry"),
        prefix=settings.telemetry.telemetry_table_prefix,
    )
