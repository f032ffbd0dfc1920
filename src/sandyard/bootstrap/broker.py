"""The Broker, wired."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fastapi import APIRouter
from prometheus_client import CollectorRegistry

from sandyard.bootstrap.engines import (
    embedded_database,
    job_runner,
    open_dynamo,
    open_part_database,
    prune_job,
)
from sandyard.bootstrap.part import Gauges, WiredPart
from sandyard.bootstrap.provider import ProviderAddress, simulated_sandbox_ids
from sandyard.bootstrap.spec import Counting, Verification
from sandyard.bootstrap.specs import broker as specs
from sandyard.broker.bulk import BulkDeletion
from sandyard.broker.http.admin import create_admin_router
from sandyard.broker.http.router import create_track_router
from sandyard.broker.jobs import BrokerJobs, Cleanup, Expiry, Sync
from sandyard.broker.metrics import BrokerMetrics, pool_gauges
from sandyard.broker.model import DeletionPolicy
from sandyard.broker.pool_provider import PoolProvider
from sandyard.broker.ports import PoolStore
from sandyard.broker.provider.client import HttpProvider, ProviderPolicy
from sandyard.broker.provider_model import provider_name
from sandyard.broker.service import Broker, RateLimit
from sandyard.broker.stores import tables
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.broker.verification import verify
from sandyard.kit.circuits import CircuitStore
from sandyard.kit.circuits_sql import SqlCircuits
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.embedded import EmbeddedDatabase
from sandyard.kit.events import EventLog
from sandyard.kit.http import BearerGuard
from sandyard.kit.jobs import JobLeases
from sandyard.kit.jobs_sql import SqlJobLeases
from sandyard.settings import BrokerSettings, ProviderSettings, Settings, tokens

if TYPE_CHECKING:  # imported where it is used: most installations don't need it
    from sandyard.broker.stores.dynamo_table import PoolTable


@dataclass(frozen=True, slots=True)
class Pool:
    """The pool on its engine."""

    engine: str
    store: PoolStore
    leases: JobLeases
    circuits: CircuitStore
    embedded: EmbeddedDatabase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPart(WiredPart):
    name: ClassVar[str] = "broker"
    broker: Broker
    jobs: BrokerJobs
    pool: Pool
    provider: HttpProvider
    provider_address: ProviderAddress

    async def start(self) -> None:
        await self.pool.store.start()

    async def check(self) -> None:
        await self.pool.store.check()

    async def gauges(self) -> Gauges:
        finished = await self.pool.leases.finished(["sync"])
        return {
            **pool_gauges((await self.pool.store.counts()).by_status),
            "last_sync_timestamp_seconds": (
                "When a sync last came to its end",
                finished.get("sync", 0),
            ),
            "provider_circuit_open": (
                "1 while the provider is not called after repeated failures",
                float(await self.provider.circuit_is_open()),
            ),
        }

    async def close_engine(self) -> None:
        await self.provider.close()
        await self.pool.store.close()


def build_broker(
    settings: Settings,
    *,
    data_dir: Path,
    provider_address: ProviderAddress,
    registry: CollectorRegistry,
    clock: Clock | None = None,
) -> BrokerPart:
    clock = clock or SystemClock()
    metrics = BrokerMetrics(registry)
    pool = open_pool(settings, data_dir=data_dir, clock=clock, metrics=metrics)
    store = pool.store
    provider = _provider(settings.provider, provider_address, pool.circuits)
    jobs = _jobs(settings, pool, provider, clock=clock, metrics=metrics)
    service = Broker(store, clock=clock, metrics=metrics, rate_limit=_rate_limit(settings))
    bulk = BulkDeletion(store, clock=clock)
    return BrokerPart(
        engine=pool.engine,
        routers=_routers(settings.broker, service, jobs, bulk, store.events),
        runner=jobs.runner,
        schedule=(jobs.sync_job, jobs.cleanup_job, jobs.expiry_job, jobs.events_job),
        embedded=pool.embedded,
        broker=service,
        jobs=jobs,
        pool=pool,
        provider=provider,
        provider_address=provider_address,
    )


def _jobs(
    settings: Settings,
    pool: Pool,
    provider: HttpProvider,
    *,
    clock: Clock,
    metrics: BrokerMetrics,
) -> BrokerJobs:
    broker, store = settings.broker, pool.store
    hours, grace_sec = broker.lab_duration_hours, round(broker.grace_period_minutes * 60)
    sync = Sync(store, provider, clock=clock, metrics=metrics, lab_duration_hours=hours)
    cleanup = Cleanup(
        store,
        provider,
        clock=clock,
        metrics=metrics,
        policy=_deletion_policy(broker),
        parallel=broker.cleanup_parallel,
        randomness=random.Random(),  # noqa: S311 - jitter, no secret
    )
    expiry = Expiry(store, clock=clock, metrics=metrics, grace_sec=grace_sec)
    own = pool_provider(settings, store)
    run, forced = own.before(sync.run), own.before(partial(sync.run, force=True))
    return BrokerJobs(
        job_runner(settings, pool.leases, clock),
        specs.SYNC.job(broker.sync_interval_sec, run, at_start=True, run_forced=forced),
        specs.CLEANUP.job(broker.cleanup_interval_sec, own.before(cleanup.run)),
        specs.EXPIRY.job(broker.auto_expiry_interval_sec, expiry.run),
        prune_job(settings, specs.EVENTS, store.events, clock),
    )


def pool_provider(settings: Settings, store: PoolStore) -> PoolProvider:
    return PoolProvider(
        store,
        configured=provider_name(settings.provider.csp_base_url),
        simulated=simulated_sandbox_ids(),
    )


@asynccontextmanager
async def open_pool_provider(settings: Settings, data_dir: Path) -> AsyncIterator[PoolProvider]:
    pool = open_pool(settings, data_dir=data_dir, clock=SystemClock())
    try:
        await pool.store.check()
        yield pool_provider(settings, pool.store)
    finally:
        await pool.store.close()


def _routers(
    settings: BrokerSettings,
    service: Broker,
    jobs: BrokerJobs,
    bulk: BulkDeletion,
    log: EventLog,
) -> Sequence[APIRouter]:
    tracks = BearerGuard(tokens(settings.broker_api_token))
    admins = BearerGuard(tokens(settings.broker_admin_token))
    return (
        create_track_router(service, tracks, prefix=settings.api_base_path),
        create_admin_router(service, jobs, bulk, log, admins, prefix=settings.api_base_path),
    )


def _deletion_policy(settings: BrokerSettings) -> DeletionPolicy:
    return DeletionPolicy(
        max_attempts=settings.deletion_retry_max_attempts,
        backoff_base_sec=settings.deletion_backoff_base_sec,
        backoff_max_sec=settings.deletion_backoff_max_sec,
    )


def open_pool(
    settings: Settings, *, data_dir: Path, clock: Clock, metrics: BrokerMetrics | None = None
) -> Pool:
    if settings.broker.pool_store == "dynamodb":
        return _open_dynamo_pool(settings, clock, metrics)
    database = open_part_database(settings, data_dir, MIGRATIONS.part)
    return Pool(
        database.name,
        SqlPoolStore(database),
        SqlJobLeases(database, tables.jobs),
        SqlCircuits(database, tables.circuits),
        embedded_database(settings, database, MIGRATIONS, tables.jobs),
    )


def _open_dynamo_pool(settings: Settings, clock: Clock, metrics: BrokerMetrics | None) -> Pool:
    from sandyard.broker.stores.dynamodb import DynamoPoolStore
    from sandyard.kit.circuits_dynamo import DynamoCircuits
    from sandyard.kit.jobs_dynamo import DynamoJobLeases

    table = open_pool_table(settings)
    store = DynamoPoolStore(
        table,
        clock=clock,
        prefetch_size=settings.broker.k_candidates,
        on_conflict=metrics.conflicts.inc if metrics else lambda: None,
        event_retention=settings.server.event_retention,
    )
    return Pool("dynamodb", store, DynamoJobLeases(table.table), DynamoCircuits(table.table))


def open_pool_table(settings: Settings) -> "PoolTable":
    """The DynamoDB table that the settings name, whether it exists or not."""
    from sandyard.broker.stores.dynamo_table import PoolTable, TableNames

    dynamo = settings.dynamo
    names = TableNames(
        table=dynamo.ddb_table_name,
        status_index=dynamo.ddb_gsi1_name,
        track_index=dynamo.ddb_gsi2_name,
        idempotency_index=dynamo.ddb_gsi3_name,
        own_events=dynamo.ddb_events_table_name,
    )
    return PoolTable(open_dynamo(settings), names)


async def verify_broker(settings: Settings, data_dir: Path, counting: Counting) -> Verification:
    pool = open_pool(settings, data_dir=data_dir, clock=SystemClock())
    try:
        await pool.store.check()
        total = (await pool.store.counts()).total
        with counting("verify", total) as progress:
            report = await verify(pool.store, progress=progress)
    finally:
        await pool.store.close()
    return Verification(
        f"{report.rows} sandboxes, {report.leases} leases, {report.tombstones} tombstones",
        [f"{problem.subject} {problem.message}" for problem in report.problems],
    )


def _rate_limit(settings: Settings) -> RateLimit | None:
    rate = settings.broker.rate_limit_per_track
    if rate is None:
        return None
    from sandyard.kit.rate_limit import RateLimit as CountedRateLimit

    return CountedRateLimit(rate, settings.broker.rate_limit_storage_url)


def _provider(
    settings: ProviderSettings, address: ProviderAddress, circuits: CircuitStore
) -> HttpProvider:
    return HttpProvider(
        base_url=address.url,
        token=address.token,
        dialect=settings.csp_dialect,
        policy=_provider_policy(settings),
        circuits=circuits,
    )


def _provider_policy(provider: ProviderSettings) -> ProviderPolicy:
    return ProviderPolicy(
        connect_timeout_sec=provider.csp_timeout_connect_sec,
        read_timeout_sec=provider.csp_timeout_read_sec,
        attempts=provider.csp_max_attempts,
        backoff_base_sec=provider.backoff_base_ms / 1000,
        backoff_max_sec=provider.backoff_max_ms / 1000,
        circuit_threshold=provider.circuit_breaker_threshold,
        circuit_timeout_sec=provider.circuit_breaker_timeout_sec,
    )


async def adopt_pool(settings: Settings) -> Sequence[str]:
    from sandyard.broker.stores.dynamo_adoption import adopt

    pool = open_pool_table(settings)
    try:
        report = await adopt(pool, clock=SystemClock())
    finally:
        await pool.close()
    leases = f"{report.leases_added} leases added, {report.already_there} were there"
    return [
        f"{pool.names.table}: {report.allocations} allocations, {leases}",
        f"{pool.names.events}: {report.baselines_added} baseline events added",
        *(
            f"  {each}: its track and key have a newer sandbox; it keeps its owner until it expires"
            for each in report.duplicates
        ),
    ]


@asynccontextmanager
async def open_broker_log(settings: Settings, data_dir: Path) -> AsyncIterator[EventLog]:
    pool = open_pool(settings, data_dir=data_dir, clock=SystemClock())
    try:
        await pool.store.check()
        yield pool.store.events
    finally:
        await pool.store.close()
