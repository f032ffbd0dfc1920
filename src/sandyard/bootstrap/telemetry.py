"""Telemetry, wired."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fastapi import APIRouter
from prometheus_client import CollectorRegistry

from sandyard.bootstrap.engines import is_embedded, open_dynamo, open_part_database, secret
from sandyard.bootstrap.part import Gauges
from sandyard.kit import ids
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.http import BearerGuard
from sandyard.kit.jobs import Job, JobRunner
from sandyard.kit.jobs_sql import SqlJobLeases
from sandyard.kit.sql import Database
from sandyard.settings import Settings, tokens
from sandyard.telemetry.http.devices import create_device_router
from sandyard.telemetry.http.operators import create_operators_router
from sandyard.telemetry.http.readings import create_readings_router
from sandyard.telemetry.jobs import RemoveExpired, RetentionReport
from sandyard.telemetry.keys import ApiKeys
from sandyard.telemetry.metrics import TelemetryMetrics
from sandyard.telemetry.model import Retention
from sandyard.telemetry.ports import KeyStore, TelemetryStore
from sandyard.telemetry.service import Telemetry
from sandyard.telemetry.stores import tables
from sandyard.telemetry.stores.sql import MIGRATIONS, SqlTelemetryStore
from sandyard.telemetry.stores.sql_keys import SqlKeyStore

if TYPE_CHECKING:  # imported where it is used: most installations don't need it
    from sandyard.telemetry.stores.dynamo_tables import TelemetryTables

PREFIX = "/telemetry/v1"


@dataclass(frozen=True, slots=True)
class TelemetryPart:
    name: ClassVar[str] = "telemetry"
    engine: str
    telemetry: Telemetry
    keys: ApiKeys
    store: TelemetryStore
    routers: Sequence[APIRouter]
    runner: JobRunner | None = None
    retention_job: Job[RetentionReport] | None = None
    embedded: Database | None = None
    """The SQLite file, if this process has the engine to itself."""

    @property
    def schedule(self) -> Sequence[Job[Any]]:
        return () if self.retention_job is None else (self.retention_job,)

    async def prepare(self) -> None:
        if self.embedded is not None:
            if await MIGRATIONS.current(self.embedded) != MIGRATIONS.head:
                await MIGRATIONS.upgrade(self.embedded)
            await SqlJobLeases(self.embedded, tables.jobs).forget_holders()
        await self.store.check()

    async def check(self) -> None:
        await self.store.check()

    async def gauges(self) -> Gauges:
        return {}

    async def close(self) -> None:
        if self.runner is not None:
            await self.runner.stop()
        await self.store.close()


def build_telemetry(
    settings: Settings,
    *,
    data_dir: Path,
    registry: CollectorRegistry,
    clock: Clock | None = None,
) -> TelemetryPart:
    clock = clock or SystemClock()
    metrics = TelemetryMetrics(registry)
    retention = Retention(round(settings.telemetry.readings_retention_days * 86400))
    store: TelemetryStore
    key_store: KeyStore
    runner: JobRunner | None = None
    job: Job[RetentionReport] | None = None
    database: Database | None = None
    if settings.telemetry.telemetry_store == "dynamodb":
        from sandyard.telemetry.stores.dynamo_keys import DynamoKeyStore
        from sandyard.telemetry.stores.dynamodb import DynamoTelemetryStore

        on_dynamodb = open_telemetry_tables(settings)
        store = DynamoTelemetryStore(on_dynamodb, retention=retention, make_intake_id=ids.holder_id)
        key_store = DynamoKeyStore(on_dynamodb)
    else:
        database = open_part_database(settings, data_dir, MIGRATIONS.part)
        store = sql_store = SqlTelemetryStore(database, retention=retention)
        key_store = SqlKeyStore(database)
        removal = RemoveExpired(sql_store, clock=clock, metrics=metrics, retention=retention)
        job = Job(
            "retention", settings.telemetry.retention_interval_sec, removal.run, at_start=True
        )
        runner = JobRunner(
            SqlJobLeases(database, tables.jobs),
            clock=clock,
            holder=ids.holder_id(),
            lease_sec=settings.server.job_lease_sec,
        )
    telemetry = Telemetry(
        store,
        clock=clock,
        make_confirmation_id=ids.uuid4,
        metrics=metrics,
        retention=retention,
    )
    keys = ApiKeys(
        key_store,
        pepper=secret(settings.telemetry.api_key_pepper) or "",
        clock=clock,
        make_key_id=ids.uuid4,
        make_api_key=ids.device_api_key,
    )
    admins = BearerGuard(tokens(settings.telemetry.telemetry_admin_token))
    routers = (
        create_device_router(telemetry, keys, prefix=PREFIX),
        create_readings_router(telemetry, admins, clock=clock, prefix=PREFIX),
        create_operators_router(telemetry, keys, admins, prefix=PREFIX),
    )
    return TelemetryPart(
        engine="dynamodb" if database is None else database.name,
        telemetry=telemetry,
        keys=keys,
        store=store,
        routers=routers,
        runner=runner,
        retention_job=job,
        embedded=database if is_embedded(settings, MIGRATIONS.part) else None,
    )


def open_telemetry_tables(settings: Settings) -> "TelemetryTables":
    """The DynamoDB tables that the settings name, whether they exist or not."""
    from sandyard.telemetry.stores.dynamo_tables import TelemetryTables

    return TelemetryTables(open_dynamo(settings), prefix=settings.telemetry.telemetry_table_prefix)
