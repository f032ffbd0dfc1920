"""Which engine each part uses, and how it is opened."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from pydantic import SecretStr

from sandyard.kit import ids
from sandyard.kit.changes.events import EventLog
from sandyard.kit.changes.pruning import PruneEvents, PruneReport
from sandyard.kit.changes.verification import HistoryReport
from sandyard.kit.clock import Clock
from sandyard.kit.jobs import Job, JobLeases, JobRunner
from sandyard.kit.observability import tracing
from sandyard.kit.sql.database import Database, open_database
from sandyard.kit.sql.embedded import EmbeddedDatabase
from sandyard.kit.sql.job_leases import SqlJobLeases
from sandyard.kit.sql.migrations import Migrations
from sandyard.kit.sql.postgres_login import PostgresLogin
from sandyard.settings import E2bSettings, Settings, SettingsError
from sandyard.wiring import spans
from sandyard.wiring.spec import JobSpec, Verification

if TYPE_CHECKING:  # imported where it is used: most installations don't need it
    from sandyard.kit.dynamo.client import Dynamo


def open_part_database(settings: Settings, data_dir: Path, part: str) -> Database:
    database = open_database(
        _login(settings),
        data_dir=data_dir,
        part=part,
        pool_size=settings.server.database_pool_size,
    )
    return tracing.traced(database, spans.database(database.name, part))


@asynccontextmanager
async def opened_database(settings: Settings, data_dir: Path, part: str) -> AsyncIterator[Database]:
    """The same, closed after the block."""
    database = open_part_database(settings, data_dir, part)
    try:
        yield database
    finally:
        await database.close()


def _login(settings: Settings) -> PostgresLogin | None:
    if settings.server.database_url is None:
        return None
    return PostgresLogin(settings.secret("database_url"), settings.secret("database_password"))


class SqlEngine:
    """A part's SQL engine, opened. A server is ready when it is usable, also if the part itself is
    built later."""

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

    async def upgrade(self) -> None:
        """Upgrade an embedded engine to the newest schema."""
        if self.embedded is not None:
            await self.embedded.upgrade()

    async def check(self) -> None:
        await self.database.check()
        await self._migrations.require_head(self.database)

    async def check_writes(self) -> None:
        await self.runner.check_writes()


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
    prune = PruneEvents(log, clock=clock, retention=settings.server.event_retention)
    return spec.job(settings.server.event_prune_interval_sec, prune.run)


def verification_of(what: str, report: HistoryReport) -> Verification:
    return Verification(
        f"{report.subjects} {what}", [f"{each.subject} {each.message}" for each in report.problems]
    )


def open_dynamo(settings: Settings) -> "Dynamo":
    from sandyard.kit.dynamo.client import Dynamo, DynamoPolicy

    dynamo = Dynamo(
        region=settings.dynamo.aws_region,
        endpoint_url=settings.dynamo.ddb_endpoint_url,
        policy=DynamoPolicy(circuit_threshold=settings.provider.circuit_breaker_threshold),
    )
    return tracing.traced(dynamo, spans.DYNAMO)


def e2b_key(settings: E2bSettings, *, needed_for: str) -> str:
    key = secret(settings.e2b_api_key)
    if key is None:
        raise SettingsError(f"E2B_API_KEY: must be set for {needed_for}")
    return key


def secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()
