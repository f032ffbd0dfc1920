"""The Broker's jobs, wired."""

import random
from dataclasses import dataclass
from functools import partial
from typing import Any

from sandyard.broker.clients.service import Clients
from sandyard.broker.history.service import History
from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.jobs import Cleanup, Expiry, Holds
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.provider_model import DeletionPolicy
from sandyard.broker.pool.sync import Sync
from sandyard.broker.probes.ports import Prober
from sandyard.broker.probes.service import ProbeJob
from sandyard.broker.provider.client import HttpProvider
from sandyard.broker.provider.model import AutoscalingPolicy, provider_name
from sandyard.broker.provider.service import PoolAutoscaler, PoolProvider
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.broker.queue.service import Queue
from sandyard.broker.reservations.service import Reservations
from sandyard.broker.wiring.delivery import Delivery
from sandyard.kit.clock import Clock
from sandyard.kit.jobs import Job
from sandyard.settings import Settings
from sandyard.wiring.engines import prune_job
from sandyard.wiring.job_specs import BrokerJobSpecs as Specs

_CLIENT_LEASES_SEC = 60
_SAMPLE_SEC = 20
"""Often enough for a sample in every minute."""
_DELIVER_SEC = 300
"""Servers follow the logs continuously; the job handles those that none follows."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """Dependencies of every job."""

    settings: Settings
    store: PoolStore
    assigner: SandboxAssigner
    clock: Clock
    metrics: BrokerMetrics


def broker_jobs(
    context: JobContext,
    provider: HttpProvider,
    queue: Queue,
    reservations: Reservations,
    prober: Prober | None,
    delivery: Delivery,
    clients: Clients,
    history: History,
) -> list[Job[Any]]:
    settings, store = context.settings, context.store
    clock, metrics, broker = context.clock, context.metrics, settings.broker
    hours, grace_sec = broker.lab_duration_hours, round(broker.grace_period_minutes * 60)
    sync = Sync(
        store,
        provider,
        clock=clock,
        metrics=metrics,
        lab_duration_hours=hours,
        assigner=context.assigner,
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
        randomness=random.Random(random.getrandbits(64)),  # noqa: S311 - jitter, no secret
    )
    expiry = Expiry(store, clock=clock, metrics=metrics, grace_sec=grace_sec)
    holds = Holds(store, clock=clock, metrics=metrics, assigner=context.assigner)
    probe = ProbeJob(
        store,
        prober,
        clock=clock,
        threshold=broker.probe_threshold,
        parallel=broker.probe_parallel,
        assigner=context.assigner,
    )
    own = pool_provider(settings, store, clock)
    autoscaler = _autoscaler(context, provider)
    run = autoscaler.around_sync(own.before(sync.run))
    forced = autoscaler.around_sync(own.before(partial(sync.run, force=True)))
    return [
        Specs.SYNC.job(broker.sync_interval_sec, run, at_start=True, run_forced=forced),
        Specs.CLEANUP.job(broker.cleanup_interval_sec, own.before(cleanup.run)),
        Specs.EXPIRY.job(broker.auto_expiry_interval_sec, expiry.run),
        Specs.QUEUE.job(broker.queue_interval_sec, queue.dispatch),
        Specs.RESERVATIONS.job(broker.reservations_interval_sec, reservations.maintain),
        Specs.HOLDS.job(broker.holds_interval_sec, holds.run),
        Specs.PROBE.job(broker.probe_interval_sec, probe.run),
        Specs.POOL.job(broker.pool_interval_sec, own.before(autoscaler.run)),
        Specs.DELIVER.job(_DELIVER_SEC, delivery.dispatcher.run),
        Specs.CLIENT_LEASES.job(_CLIENT_LEASES_SEC, clients.free_slots),
        Specs.HISTORY.job(_SAMPLE_SEC, history.sample),
        prune_job(settings, Specs.EVENTS, store.events, clock),
    ]


def pool_provider(settings: Settings, store: PoolStore, clock: Clock) -> PoolProvider:
    name = provider_name(settings.provider.csp_base_url)
    return PoolProvider(store, clock=clock, configured=name)


def _autoscaler(context: JobContext, provider: HttpProvider) -> PoolAutoscaler:
    broker = context.settings.broker
    policy = AutoscalingPolicy(
        min_available=broker.pool_min_available,
        max_total=broker.pool_max_total,
        low_available=broker.pool_low_available,
        per_hour=broker.pool_create_per_hour,
        lookahead_sec=round(broker.pool_lookahead_minutes * 60),
    )
    return PoolAutoscaler(
        context.store,
        provider,
        clock=context.clock,
        policy=policy,
        lab_duration_hours=broker.lab_duration_hours,
        name_prefix=broker.pool_name_prefix,
        assigner=context.assigner,
    )
