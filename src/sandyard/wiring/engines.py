"""Which engine each part uses, and how it is opened."""

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from pydantic import SecretStr

from sandyard.bootstrap.registry import get_spec
from sandyard.broker.wiring import spans
from sandyard.kit import ids
from sandyard.kit.changes.events import EventLog
from sandyard.kit.changes.pruning import PruneEvents, PruneReport
from sandyard.kit.changes.verification import HistoryReport
from sandyard.kit.clock import Clock
from sandyard.kit.jobs import Job, JobLeases, JobRunner
from sandyard.kit.observability import tracing
from sandyard.kit.sql.database import Database, open_database
from sandyard.kit.sql.embedded import EmbeddedDatabase
from sandyard.kit.sql.migrations import Migrations
from sandyard.kit.sql.postgres_login import PostgresLogin
from sandyard.settings import E2bSettings, Settings, SettingsError
from sandyard.wiring.spec import JobSpec, Verification

if TYPE_CHECKING:  # imported where it is used: most installations don't need it
    from sandyard.kit.dynamo.client import Dynamo


def is_embedded(settings: Settings, part: str) -> bool:
    """Whether the part's data is in the data dir, and so belongs to one process."""
    return get_spec(part).is_embedded(settings)


def open_part_database(settings: Settings, data_dir: Path, part: str) -> Database:
    database = open_database(
        _login(settings),
        data_dir=data_dir,
        part=part,
        pool_size=settings.server.database_pool_size,
    )
    return tracing.traced(database, spans.database(database.name, part))


def _login(settings: Settings) -> PostgresLogin | None:
    if settings.server.database_url is None:
        return None
    return PostgresLogin(settings.secret("database_url"), settings.secret("database_password"))


def embedded_database(
    settings: Settings, database: Database, migrations: Migrations, jobs: sa.Table
) -> EmbeddedDatabase | None:
    """The part's database if this process uses it exclusively."""
    if not is_embedded(settings, migrations.part):
        return None
    return EmbeddedDatabase(database, migrations, jobs)


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
