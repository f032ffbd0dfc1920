"""Settings, clock and ids in; the wired parts out. The only place that picks an engine."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry
from pydantic import SecretStr

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
from sandyard.kit.jobs import Job, JobRunner
from sandyard.kit.jobs_sql import SqlJobLeases
from sandyard.kit.migrations import Migrations
from sandyard.kit.sql import Database, open_database
from sandyard.settings import ProviderSettings, Settings

MIGRATED_PARTS: tuple[Migrations, ...] = (MIGRATIONS,)


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
class BrokerPart:
    broker: Broker
    jobs: BrokerJobs
    store: PoolStore
    leases: SqlJobLeases
    provider: HttpProvider
    database: Database

    async def gauges(self) -> Mapping[str, tuple[str, float]]:
        """What `/metrics` shows of the pool, read now."""
        finished = await self.leases.finished()
        return {
            **pool_gauges(await self.store.counts()),
            "last_sync_timestamp_seconds": (
                "When a sync last came to its end",
                finished.get("sync", 0),
            ),
            "provider_circuit_open": (
                "1 while the provider is being left alone",
                float(await self.provider.circuit_is_open()),
            ),
        }

    async def prepare_embedded(self) -> None:
        """Bring a SQLite file to the newest schema, and free the jobs of a process that died."""
        if await MIGRATIONS.current(self.database) != MIGRATIONS.head:
            await MIGRATIONS.upgrade(self.database)
        await self.leases.forget_holders()

    async def close(self) -> None:
        await self.jobs.runner.stop()
        await self.provider.close()
        await self.store.close()


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
    database = open_part_database(settings, data_dir, MIGRATIONS.part)
    store = SqlPoolStore(database)
    leases = SqlJobLeases(database, tables.jobs)
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
    runner = JobRunner(leases, clock=clock, holder=ids.holder_id(), lease_sec=broker.job_lease_sec)
    jobs = BrokerJobs(
        runner=runner,
        sync_job=Job("sync", broker.sync_interval_sec, sync.run, at_start=True),
        cleanup_job=Job("cleanup", broker.cleanup_interval_sec, cleanup.run),
        expiry_job=Job("expiry", broker.auto_expiry_interval_sec, expiry.run),
        sync_now=sync,
    )
    service = Broker(store, clock=clock, metrics=metrics, rate_limit=_rate_limit(settings))
    return BrokerPart(service, jobs, store, leases, provider, database)


def open_part_database(settings: Settings, data_dir: Path, part: str) -> Database:
    return open_database(
        _secret(settings.server.database_url),
        data_dir=data_dir,
        part=part,
        pool_size=settings.server.database_pool_size,
    )


def is_embedded(settings: Settings) -> bool:
    """Whether everything is in the data dir, and so belongs to one process."""
    return settings.server.database_url is None


def _rate_limit(settings: Settings) -> RateLimit | None:
    rate = settings.broker.rate_limit_per_track
    if rate is None:
        return None
    from sandyard.broker.rate_limit import TrackRateLimit

    return TrackRateLimit(rate, settings.broker.rate_limit_storage_url)


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


def _secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()
