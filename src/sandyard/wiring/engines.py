"""Which engine each part uses, and how it is opened."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from pydantic import SecretStr

from sandyard.kit import ids
from sandyard.kit.changes.events import EventLog, PruneReport, prune_events
from sandyard.kit.changes.verification import HistoryReport
from sandyard.kit.clock import Clock
from sandyard.kit.jobs import Job, JobLeases, JobRunner
from sandyard.kit.observability.tracing import About, traced
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.job_leases import SqlJobLeases
from sandyard.kit.sql.migrations import EmbeddedDatabase, Migrations
from sandyard.kit.sql.store_states import FencedDatabase, SqlStoreStates
from sandyard.kit.store_states import needs_right
from sandyard.settings import E2bSettings, Settings, SettingsError
from sandyard.wiring import stores
from sandyard.wiring.spec import JobSpec, Verification

if TYPE_CHECKING:
    from sandyard.kit.dynamo.client import Dynamo


def open_part_database(settings: Settings, data_dir: Path, part: str) -> Database:
    """Used only while the store's state allows it, unless opened `in_any_state`."""
    database: Database = stores.open_sql(settings, data_dir, part)
    if needs_right():
        store = stores.Store(settings, data_dir, part, database.name)
        states = SqlStoreStates(database, part)
        database = FencedDatabase(database, stores.write_right(store, states))
    return traced(database, _database_span(database.name, part))


@asynccontextmanager
async def opened_database(settings: Settings, data_dir: Path, part: str) -> AsyncIterator[Database]:
    """The same, closed after the block."""
    database = open_part_database(settings, data_dir, part)
    try:
        yield database
    finally:
        await database.close()


class SqlEngine:
    """A part's SQL engine, opened."""

    def __init__(
        self,
        settings: Settings,
        data_dir: Path,
        migrations: Migrations,
        jobs: sa.Table,
        clock: Clock,
    ) -> None:
        self.database = open_part_database(settings, data_dir, migrations.part)
        self.name, self.engine = migrations.part, self.database.name
        self.runner = job_runner(settings, SqlJobLeases(self.database, jobs), clock)
        self.embedded: EmbeddedDatabase | None = None
        if settings.server.database_url is None:
            self.embedded = EmbeddedDatabase(self.database, migrations, jobs)
        self._migrations = migrations

    async def check(self) -> None:
        await self.database.check()
        await self._migrations.require_head(self.database)


@asynccontextmanager
async def open_for_command(
    settings: Settings, data_dir: Path, migrations: Migrations
) -> AsyncIterator[Database]:
    """A part's database with the newest schema, for a command that reads it."""
    async with opened_database(settings, data_dir, migrations.part) as database:
        await migrations.require_head(database)
        yield database


def job_runner(settings: Settings, leases: JobLeases, clock: Clock) -> JobRunner:
    return JobRunner(
        leases, clock=clock, holder=ids.holder_id(), lease_sec=settings.server.job_lease_sec
    )


def prune_job(settings: Settings, spec: JobSpec, log: EventLog, clock: Clock) -> Job[PruneReport]:
    retention = settings.server.event_retention
    run = partial(prune_events, log, clock=clock, retention=retention)
    return spec.job(settings.server.event_prune_interval_sec, run)


def verification_of(what: str, report: HistoryReport) -> Verification:
    return Verification(
        f"{report.subjects} {what}", [f"{each.subject} {each.message}" for each in report.problems]
    )


def open_part_dynamo(settings: Settings, data_dir: Path | None, part: str) -> "Dynamo":
    """The same for a part on DynamoDB. Without a data dir, nothing is looked for in it."""
    from sandyard.kit.dynamo.items import Table
    from sandyard.kit.dynamo.store_states import DynamoStoreStates, FencedDynamo

    if not needs_right():
        return traced(stores.open_dynamo(settings), _DYNAMO_SPAN)
    states = DynamoStoreStates(
        Table(stores.open_dynamo(settings), stores.event_table(settings, part))
    )
    store = stores.Store(settings, data_dir, part, "dynamodb")
    dynamo = FencedDynamo(
        stores.write_right(store, states), states, **stores.dynamo_options(settings)
    )
    return traced(dynamo, _DYNAMO_SPAN)


def e2b_key(settings: E2bSettings, *, needed_for: str) -> str:
    key = secret(settings.e2b_api_key)
    if key is None:
        raise SettingsError(f"E2B_API_KEY: must be set for {needed_for}")
    return key


def secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()


def _database_span(engine: str, part: str) -> About:
    """A part's transactions. One that several calls share is shown in the trace of one of them."""
    return About(
        engine,
        kind="client",
        attributes={"db.system.name": engine, "db.namespace": part},
        calls=frozenset({"read", "write", "run_statement", "hold"}),
    )


def _action(arguments: Sequence[Any]) -> str:
    return f"dynamodb {arguments[0]}"


_DYNAMO_SPAN = About(
    "dynamodb",
    kind="client",
    attributes={"db.system.name": "aws.dynamodb"},
    label=_action,
    calls=frozenset({"call"}),
)
