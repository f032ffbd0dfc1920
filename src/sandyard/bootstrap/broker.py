"""The Broker, wired."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fastapi import APIRouter
from prometheus_client import CollectorRegistry

from sandyard.bootstrap.engines import is_embedded, open_dynamo, open_part_database
from sandyard.bootstrap.part import Gauges
from sandyard.broker.http.admin import create_admin_router
from sandyard.broker.http.router import create_track_router
from sandyard.broker.jobs import Cleanup, CleanupReport, Expiry, ExpiryReport, Sync, SyncReport
from sandyard.broker.metrics import BrokerMetrics, pool_gauges
from sandyard.broker.model import DeletionPolicy
from sandyard.broker.ports import PoolStore
from sandyard.broker.provider.client import HttpProvider, ProviderPolicy
from sandyard.broker.service import Broker, RateLimit
from sandyard.broker.stores import tables
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.kit import ids
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.http import BearerGuard
from sandyard.kit.jobs import Job, JobLeases, JobRunner
from sandyard.kit.jobs_sql import SqlJobLeases
from sandyard.kit.sql import Database
from sandyard.settings import ProviderSettings, Settings, tokens

if TYPE_CHECKING:  # imported where it is used: most installations don't need it
    from sandyard.broker.stores.dynamo_table import PoolTable


@dataclass(frozen=True, slots=True)
class BrokerJobs:
    """The Broker's jobs under their leases, for the schedule and for operators alike."""

    runner: JobRunner
    sync_job: Job[SyncReport]
    cleanup_job: Job[CleanupReport]
    expiry_job: Job[ExpiryReport]
    sync_now: Sync

    async def sync(self, *, force: bool = False) -> SyncReport:
        job = self.sync_job

        async def run() -> SyncReport:
            return await self.sync_now.run(force=force)

        return await self.runner.run(Job(job.name, job.interval_sec, run))

    async def cleanup(self) -> CleanupReport:
        return await self.runner.run(self.cleanup_job)

    async def expire(self) -> ExpiryReport:
        return await self.runner.run(self.expiry_job)


@dataclass(frozen=True, slots=True)
class Pool:
    """The pool on its engine."""

    engine: str
    store: PoolStore
    leases: JobLeases
    embedded: Database | None = None
    """The SQLite file, if this process has the engine to itself."""

    async def prepare(self) -> None:
        """Bring an embedded engine to the newest schema and free the jobs of a process that died;
        raise UnavailableError if a shared one is not fit for use."""
        if self.embedded is not None:
            if await MIGRATIONS.current(self.embedded) != MIGRATIONS.head:
                await MIGRATIONS.upgrade(self.embedded)
            await SqlJobLeases(self.embedded, tables.jobs).forget_holders()
        await self.store.check()


@dataclass(frozen=True, slots=True)
class BrokerPart:
    name: ClassVar[str] = "broker"
    broker: Broker
    jobs: BrokerJobs
    pool: Pool
    provider: HttpProvider
    routers: Sequence[APIRouter]

    @property
    def engine(self) -> str:
        return self.pool.engine

    @property
    def runner(self) -> JobRunner:
        return self.jobs.runner

    @property
    def schedule(self) -> Sequence[Job[Any]]:
        return (self.jobs.sync_job, self.jobs.cleanup_job, self.jobs.expiry_job)

    async def prepare(self) -> None:
        await self.pool.prepare()

    async def check(self) -> None:
        await self.pool.store.check()

    async def gauges(self) -> Gauges:
        finished = await self.pool.leases.finished(["sync"])
        return {
            **pool_gauges(await self.pool.store.counts()),
            "last_sync_timestamp_seconds": (
                "When a sync last came to its end",
                finished.get("sync", 0),
            ),
            "provider_circuit_open": (
                "1 while the provider is being left alone",
                float(await self.provider.circuit_is_open()),
            ),
        }

    async def close(self) -> None:
        await self.jobs.runner.stop()
        await self.provider.close()
        await self.pool.store.close()


def build_broker(
    settings: Settings,
    *,
    data_dir: Path,
    provider_url: str,
    provider_token: str,
    registry: CollectorRegistry,
    clock: Clock | None = None,
) -> BrokerPart:
    clock = clock or SystemClock()
    broker = settings.broker
    metrics = BrokerMetrics(registry)
    pool = open_pool(settings, data_dir=data_dir, clock=clock, metrics=metrics)
    store = pool.store
    provider = HttpProvider(
        base_url=provider_url,
        token=provider_token,
        dialect=settings.provider.csp_dialect,
        policy=_provider_policy(settings.provider),
    )
    sync = Sync(
        store,
        provider,
        clock=clock,
        metrics=metrics,
        lab_duration_hours=broker.lab_duration_hours,
    )
    cleanup = Cleanup(
        store,
        provider,
        clock=clock,
        metrics=metrics,
        policy=DeletionPolicy(
            max_attempts=broker.deletion_retry_max_attempts,
            backoff_base_sec=broker.deletion_backoff_base_sec,
            backoff_max_sec=broker.deletion_backoff_max_sec,
        ),
        parallel=broker.cleanup_parallel,
        randomness=random.Random(),  # noqa: S311 - jitter, no secret
    )
    expiry = Expiry(
        store, clock=clock, metrics=metrics, grace_sec=round(broker.grace_period_minutes * 60)
    )
    runner = JobRunner(
        pool.leases, clock=clock, holder=ids.holder_id(), lease_sec=settings.server.job_lease_sec
    )
    jobs = BrokerJobs(
        runner=runner,
        sync_job=Job("sync", broker.sync_interval_sec, sync.run, at_start=True),
        cleanup_job=Job("cleanup", broker.cleanup_interval_sec, cleanup.run),
        expiry_job=Job("expiry", broker.auto_expiry_interval_sec, expiry.run),
        sync_now=sync,
    )
    service = Broker(store, clock=clock, metrics=metrics, rate_limit=_rate_limit(settings))
    tracks = BearerGuard(tokens(broker.broker_api_token))
    admins = BearerGuard(tokens(broker.broker_admin_token))
    routers = (
        create_track_router(service, tracks, prefix=broker.api_base_path),
        create_admin_router(service, jobs, admins, prefix=broker.api_base_path),
    )
    return BrokerPart(service, jobs, pool, provider, routers)


def open_pool(
    settings: Settings, *, data_dir: Path, clock: Clock, metrics: BrokerMetrics | None = None
) -> Pool:
    if settings.broker.pool_store == "dynamodb":
        from sandyard.broker.stores.dynamodb import DynamoPoolStore
        from sandyard.kit.jobs_dynamo import DynamoJobLeases

        table = open_pool_table(settings)
        store = DynamoPoolStore(
            table,
            clock=clock,
            reservoir_size=settings.broker.k_candidates,
            on_conflict=metrics.conflicts.inc if metrics else lambda: None,
        )
        return Pool("dynamodb", store, DynamoJobLeases(table.table))
    database = open_part_database(settings, data_dir, MIGRATIONS.part)
    return Pool(
        database.name,
        SqlPoolStore(database),
        SqlJobLeases(database, tables.jobs),
        embedded=database if is_embedded(settings, MIGRATIONS.part) else None,
    )


def open_pool_table(settings: Settings) -> "PoolTable":
    """The DynamoDB table that the settings name, whether it exists or not."""
    from sandyard.broker.stores.dynamo_table import PoolTable, TableNames

    dynamo = settings.dynamo
    names = TableNames(
        table=dynamo.ddb_table_name,
        status_index=dynamo.ddb_gsi1_name,
        track_index=dynamo.ddb_gsi2_name,
        idempotency_index=dynamo.ddb_gsi3_name,
    )
    return PoolTable(open_dynamo(settings), names)


def _rate_limit(settings: Settings) -> RateLimit | None:
    rate = settings.broker.rate_limit_per_track
    if rate is None:
        return None
    from sandyard.kit.rate_limit import RateLimit as CountedRateLimit

    return CountedRateLimit(rate, settings.broker.rate_limit_storage_url)


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
