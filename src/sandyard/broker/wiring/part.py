"""The Broker, wired."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from prometheus_client import CollectorRegistry

from sandyard.broker.clients.guards import AdminGuard, TrackGuard
from sandyard.broker.clients.http import create_client_router
from sandyard.broker.clients.service import Clients
from sandyard.broker.delivery.dispatcher import OpenLog
from sandyard.broker.delivery.http import create_webhook_router
from sandyard.broker.history.http import Monitor, ProviderFacts, create_monitor_router
from sandyard.broker.history.service import History
from sandyard.broker.metrics import BrokerMetrics, pool_gauges
from sandyard.broker.pool.bulk import BulkChanges
from sandyard.broker.pool.http.admin import create_admin_router
from sandyard.broker.pool.http.tracks import create_track_router
from sandyard.broker.pool.leases import Leases
from sandyard.broker.pool.model import lab_seconds
from sandyard.broker.pool.names import KnownNames
from sandyard.broker.pool.service import Broker, CountCall
from sandyard.broker.probes.ports import Prober
from sandyard.broker.probes.probers import prober_of
from sandyard.broker.probes.service import CallProber, ClaimChecker
from sandyard.broker.provider.client import DIALECTS, HttpProvider
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.broker.queue.http import create_queue_router, create_tickets_router
from sandyard.broker.queue.service import Queue
from sandyard.broker.reservations.cache import ReservationCache
from sandyard.broker.reservations.http import create_reservation_router
from sandyard.broker.reservations.service import Reservations
from sandyard.broker.verification import verify
from sandyard.broker.wiring import spans
from sandyard.broker.wiring.clients import client_access
from sandyard.broker.wiring.delivery import build_delivery
from sandyard.broker.wiring.jobs import JobContext, broker_jobs
from sandyard.broker.wiring.pool import Pool, open_pool, opened_pool
from sandyard.broker.wiring.provider import ProviderAddress, provider_policy
from sandyard.kit.changes.transitions import Entity
from sandyard.kit.circuits import CircuitStore
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.http.client_address import ClientAddress
from sandyard.kit.jobs import Job, JobRun, JobRunner
from sandyard.kit.observability.metrics import Gauges
from sandyard.kit.observability.tracing import traced
from sandyard.settings import BrokerSettings, ProviderSettings, Settings
from sandyard.wiring.engines import job_runner
from sandyard.wiring.job_specs import BrokerJobSpecs
from sandyard.wiring.part import Part
from sandyard.wiring.spec import Counting, Verification

_PROBE_AT_CLAIM_SEC = 8.0
"""Less than the time limit of a claim."""


class BrokerPart(Part):
    """Everything above the engine and the provider."""

    name: ClassVar[str] = "broker"

    def __init__(
        self,
        settings: Settings,
        *,
        pool: Pool,
        provider: HttpProvider,
        provider_address: ProviderAddress,
        metrics: BrokerMetrics,
        other_logs: Mapping[str, OpenLog],
        clock: Clock,
    ) -> None:
        self.pool, self.engine, self.embedded = pool, pool.engine, pool.embedded
        self.provider, self.provider_address = provider, provider_address
        store = traced(pool.store, spans.POOL)
        self.events = store.events
        ttl_sec = settings.broker.queue_ticket_ttl_sec
        assigner = SandboxAssigner(store, clock=clock, ticket_ttl_sec=ttl_sec)
        cache = ReservationCache(store)
        self.queue = Queue(
            store, clock=clock, ticket_ttl_sec=ttl_sec, assigner=assigner, reservations=cache
        )
        self.runner = job_runner(settings, pool.leases, clock)
        self.delivery = build_delivery(
            settings,
            pool=store,
            store=pool.deliveries,
            runner=self.runner,
            other_logs=other_logs,
            clock=clock,
            metrics=metrics,
        )
        clients = Clients(store, pool.clients, clock=clock)
        self.access = client_access(settings, store, pool.clients, clock, metrics)
        most = settings.broker.pool_max_total
        reservations = Reservations(
            store, clock=clock, pool_max_total=most, assigner=assigner, cache=cache
        )
        self.prober = _prober(settings.broker, provider)
        context = JobContext(settings, store, assigner, clock, metrics)
        history = History(store, pool.history, clock=clock)
        self.schedule = broker_jobs(
            *(context, provider, self.queue, reservations, self.prober),
            *(self.delivery, clients, history),
        )
        jobs = {job.name: job for job in self.schedule}
        service, leases = _claims(context, self.queue, cache, self.prober)
        bulk = BulkChanges(store, clock=clock, assigner=assigner)
        monitor = _monitor(context, self.runner, jobs, provider, provider_address)
        tracks = TrackGuard(settings.secret("broker_api_token"), self.access)
        operators = AdminGuard(
            settings.secret("broker_admin_token"),
            self.access,
            allowed=settings.broker.allowed_networks,
            addresses=ClientAddress(settings.server.proxy_networks),
        )
        admins, prefix = operators.require_admin, settings.broker.api_base_path
        longest_wait_sec = settings.broker.queue_max_wait_sec
        self.routers = [
            create_track_router(
                service, leases, tracks, prefix=prefix, longest_wait_sec=longest_wait_sec
            ),
            create_queue_router(service, tracks, prefix=prefix, ticket_ttl_sec=ttl_sec),
            create_tickets_router(self.queue, operators, prefix=prefix),
            create_admin_router(
                *(service, leases, self.runner, jobs, bulk, store, provider, operators),
                prefix=prefix,
            ),
            create_webhook_router(self.delivery.webhooks, admins, prefix=prefix),
            create_client_router(clients, admins, prefix=prefix),
            create_monitor_router(monitor, history, operators, prefix=prefix),
            create_reservation_router(reservations, operators, clock=clock, prefix=prefix),
        ]

    async def start(self) -> None:
        await self.pool.store.start()
        self.delivery.dispatcher.start()

    def drain(self) -> None:
        self.queue.stop()

    async def check(self) -> None:
        await self.pool.store.check()

    async def own_gauges(self) -> Gauges:
        sync = (await self.pool.leases.runs(["sync"])).get("sync", JobRun())
        return {
            **pool_gauges((await self.pool.store.counts()).by_status),
            "queue_waiting": (
                "Tickets that wait for a sandbox",
                await self.pool.store.count_waiting(),
            ),
            "last_sync_timestamp_seconds": (
                "When a sync last came to its end",
                sync.finished_at or 0,
            ),
            "provider_circuit_open": (
                "1 while the provider is not called after repeated failures",
                float(await self.provider.circuit_is_open()),
            ),
        }

    async def close_engine(self) -> None:
        await self.delivery.close()
        await self.access.close()
        if self.prober is not None:
            await self.prober.close()
        await self.provider.close()
        await self.pool.store.close()


def build_broker(
    settings: Settings,
    *,
    data_dir: Path,
    provider_address: ProviderAddress,
    registry: CollectorRegistry,
    other_logs: Mapping[str, OpenLog],
    clock: Clock | None = None,
) -> BrokerPart:
    """`other_logs` are those of the other parts of this process, whose events are delivered too."""
    clock = clock or SystemClock()
    metrics = BrokerMetrics(registry)
    pool = open_pool(settings, data_dir=data_dir, clock=clock, metrics=metrics)
    provider = _provider(settings.provider, provider_address, pool.circuits)
    return BrokerPart(
        settings,
        pool=pool,
        provider=provider,
        provider_address=provider_address,
        metrics=metrics,
        other_logs=other_logs,
        clock=clock,
    )


def _claims(
    context: JobContext, queue: Queue, reservations: ReservationCache, prober: Prober | None
) -> tuple[Broker, Leases]:
    """Grants leases; if so configured, each sandbox is probed before its track gets it."""
    settings, store = context.settings.broker, context.store
    clock, metrics, assigner = context.clock, context.metrics, context.assigner
    lease_max_sec, hold_sec = (
        lab_seconds(settings.lease_max_hours),
        lab_seconds(settings.hold_hours),
    )
    names = KnownNames(store, clock=clock)
    start_prober = checker = None
    if prober is not None and settings.probe_at_claim:
        start_prober = partial(CallProber.start, prober, _PROBE_AT_CLAIM_SEC)
    leases = Leases(
        store,
        clock=clock,
        metrics=metrics,
        lease_max_sec=lease_max_sec,
        max_replacements=settings.lease_max_replacements,
        hold_sec=hold_sec,
        assigner=assigner,
        reservations=reservations,
        names=names,
        begin_check=start_prober,
    )
    if start_prober is not None:
        checker = ClaimChecker(
            store, leases, start_prober, clock=clock, hold_sec=hold_sec, assigner=assigner
        )
    service = Broker(
        store,
        clock=clock,
        metrics=metrics,
        rate_limit=_rate_limit(context.settings),
        lease_max_sec=lease_max_sec,
        hold_sec=hold_sec,
        waiting=queue,
        reservations=reservations,
        assigner=assigner,
        names=names,
        check_claimed=None if checker is None else checker.check,
    )
    return service, leases


def _monitor(
    context: JobContext,
    runner: JobRunner,
    jobs: Mapping[str, Job[Any]],
    provider: HttpProvider,
    address: ProviderAddress,
) -> Monitor:
    settings = context.settings.provider
    return Monitor(
        context.store,
        clock=context.clock,
        runner=runner,
        jobs=jobs,
        does={spec.name: spec.does for spec in BrokerJobSpecs.all()},
        provider=provider,
        facts=ProviderFacts(
            address=settings.csp_base_url or address.description,
            dialect=settings.csp_dialect,
            circuit_timeout_sec=settings.circuit_breaker_timeout_sec,
        ),
    )


def _prober(settings: BrokerSettings, provider: HttpProvider) -> Prober | None:
    if settings.probe is None:
        return None
    return prober_of(settings.probe, provider, timeout_sec=settings.probe_timeout_sec)


async def verify_broker(settings: Settings, data_dir: Path, counting: Counting) -> Verification:
    async with opened_pool(settings, data_dir) as pool:
        with counting("verify broker", None) as progress:
            report = await verify(
                pool.store,
                ticket_ttl_sec=settings.broker.queue_ticket_ttl_sec,
                progress=progress,
                others=partial(_others, pool),
            )
    return Verification(
        f"{report.rows} sandboxes, {report.leases} leases, {report.tombstones} tombstones",
        [f"{problem.subject} {problem.message}" for problem in report.problems],
    )


async def _others(pool: Pool) -> Sequence[Entity]:
    return [*await pool.deliveries.webhooks(), *await pool.clients.clients()]


def _rate_limit(settings: Settings) -> CountCall | None:
    rate = settings.broker.rate_limit_per_track
    if rate is None:
        return None
    from sandyard.kit.rate_limit import RateLimit

    return RateLimit(rate, settings.broker.rate_limit_storage_url).wait_for


def _provider(
    settings: ProviderSettings, address: ProviderAddress, circuits: CircuitStore
) -> HttpProvider:
    provider = DIALECTS[settings.csp_dialect](
        base_url=address.url,
        token=address.token,
        policy=provider_policy(settings),
        circuits=circuits,
    )
    return traced(provider, spans.PROVIDER)
