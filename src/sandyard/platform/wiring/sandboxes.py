"""Sandboxes, their usage and their bills, wired to the runtime and the Platform's database."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from sandyard.kit.clock import Clock
from sandyard.kit.ids import resource_id
from sandyard.kit.jobs import Job
from sandyard.kit.node import node_name
from sandyard.kit.observability.metrics import Gauges
from sandyard.kit.sizes import GIGABYTE
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.transitions import SqlTransitions
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.billing.http import create_billing_router
from sandyard.platform.billing.jobs import BillingReport, MakeBills
from sandyard.platform.billing.service import Statements
from sandyard.platform.billing.sql.store import SqlBillingStore
from sandyard.platform.measurements.http import create_metrics_router
from sandyard.platform.measurements.jobs import Measure
from sandyard.platform.measurements.sql import SqlMeasurementStore
from sandyard.platform.quotas.model import Resources
from sandyard.platform.quotas.sandbox_quotas import SandboxQuotas
from sandyard.platform.sandboxes.admin_http import create_admin_sandboxes_router
from sandyard.platform.sandboxes.archives.jobs import ExpireSnapshots
from sandyard.platform.sandboxes.archives.service import SandboxArchives
from sandyard.platform.sandboxes.archives.sql import SqlArchiveStore
from sandyard.platform.sandboxes.archives.usage import ArchiveUsage
from sandyard.platform.sandboxes.http import create_sandboxes_router
from sandyard.platform.sandboxes.ids import SandboxIds
from sandyard.platform.sandboxes.network.gateway_targets import SandboxTargets
from sandyard.platform.sandboxes.runs.activity import Activity
from sandyard.platform.sandboxes.runs.deadlines import Deadlines
from sandyard.platform.sandboxes.runs.jobs import Reconcile
from sandyard.platform.sandboxes.runs.recorder import RunPolicy, RunRecorder
from sandyard.platform.sandboxes.runs.warm import WarmSandboxes
from sandyard.platform.sandboxes.service import Sandboxes, SandboxPolicy
from sandyard.platform.sandboxes.sql.store import SqlSandboxStore
from sandyard.platform.sessions.listening_ports.http import UrlOf
from sandyard.platform.sessions.service import Sessions
from sandyard.platform.templates.sql import SqlTemplateStore
from sandyard.platform.usage.http import create_usage_router
from sandyard.platform.usage.model import PriceList
from sandyard.platform.usage.sql import SqlUsageStore
from sandyard.platform.variables.http import create_sandbox_env_router
from sandyard.platform.variables.parents import ParentSandboxes
from sandyard.platform.variables.service import Variables
from sandyard.platform.wiring.runtimes import open_e2b_runtime, open_local_runtime
from sandyard.platform.wiring.sandbox_gauges import sandbox_gauges
from sandyard.platform.wiring.sessions import session_routers
from sandyard.platform.wiring.shared import PREFIX, Shared
from sandyard.runtime.ports import Runtime
from sandyard.runtime.programs.warm import WarmRuns
from sandyard.runtime.records.archives import ArchiveFolder
from sandyard.runtime.records.run_folder import RunFolders
from sandyard.runtime.remote.backoff import Backoff
from sandyard.runtime.remote.http import HttpPool
from sandyard.settings import SandboxSettings
from sandyard.wiring.addresses import PROGRAM_PORT
from sandyard.wiring.job_specs import platform as specs

_SILENT_AFTER = 5
"""A node that misses this many runs of its job `ends` is silent."""


_LOCAL = "runtime"
"""The folder of the local runtime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxesWired:
    node: str
    sandboxes: Sandboxes
    recorder: RunRecorder
    runtime: Runtime
    local_runtime: Runtime
    """This machine's, wherever sandboxes run."""
    schedule: Sequence[Job[Any]]
    routers: Sequence[APIRouter]
    quotas: SandboxQuotas
    e2b_pool: HttpPool
    """Shared by all callers of E2B with the same key."""
    targets: SandboxTargets
    """For the gateway."""
    gauges: Callable[[], Awaitable[Gauges]]
    activity: Activity
    store: SqlSandboxStore
    sessions: Sessions
    deadlines: Deadlines
    measurements: SqlMeasurementStore
    archives: SandboxArchives
    uploads: ArchiveFolder
    """Uploaded files for template builds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """Dependencies of sandboxes, measurements and bills."""

    settings: SandboxSettings
    database: Database
    clock: Clock
    node: str
    runtime: Runtime
    transitions: SqlTransitions
    store: SqlSandboxStore
    ids: SandboxIds
    prices: PriceList
    storage_bytes: int
    url_of: UrlOf


def build_sandboxes(
    platform: Shared, variables: Variables, given_runtime: Runtime | None
) -> SandboxesWired:
    settings, e2b = platform.settings.sandboxes, platform.settings.e2b
    guard, clock, data_dir = platform.guard, platform.clock, platform.data_dir
    e2b_pool = HttpPool(Backoff())
    node = node_name(data_dir)
    runtime = local_runtime = given_runtime or open_local_runtime(settings, data_dir, clock)
    if settings.sandbox_runtime == "e2b":
        runtime = open_e2b_runtime(settings, e2b, data_dir, clock, node=node, pool=e2b_pool)
    shared = _shared(platform, node, runtime)
    store = shared.store
    recorder, activity = _recorder(shared), Activity(store, clock=clock)
    sessions = Sessions(store, runtime, activity, node=node)
    warm = _warm(shared, data_dir) if settings.sandbox_runtime == "local" else None
    sandboxes = _sandboxes(shared, recorder, variables, warm)
    measurements = SqlMeasurementStore(shared.database, make_metric_id=partial(resource_id, "mtr"))
    billing_store = SqlBillingStore(shared.database, shared.transitions)
    billing_job = _billing_job(shared, billing_store)
    program_port = e2b.e2b_port if settings.sandbox_runtime == "e2b" else PROGRAM_PORT
    return SandboxesWired(
        node=node,
        sandboxes=sandboxes,
        recorder=recorder,
        runtime=runtime,
        local_runtime=local_runtime,
        schedule=(*_node_jobs(shared, sandboxes, recorder, measurements, warm), billing_job),
        routers=(
            create_sandboxes_router(sandboxes, guard, prefix=PREFIX),
            create_admin_sandboxes_router(sandboxes, guard, prefix=PREFIX),
            create_sandbox_env_router(variables, ParentSandboxes(store), guard, prefix=PREFIX),
            *session_routers(platform, sessions, variables),
            create_metrics_router(measurements, sandboxes, guard, clock=clock, prefix=PREFIX),
            *_billing_routers(
                shared, billing_store, partial(platform.runner.run, billing_job), guard
            ),
        ),
        quotas=SandboxQuotas(store, _quota(settings)),
        e2b_pool=e2b_pool,
        targets=SandboxTargets(
            store, sandboxes, runtime, node=node, program_port=program_port, activity=activity
        ),
        gauges=partial(sandbox_gauges, store, clock, _silent_for(settings)),
        activity=activity,
        store=store,
        sessions=sessions,
        deadlines=Deadlines(store, runtime, recorder, node=node),
        measurements=measurements,
        archives=SandboxArchives(store, runtime, _archive_usage(shared), node=node, clock=clock),
        uploads=ArchiveFolder(data_dir / "uploads"),
    )


def _shared(platform: Shared, node: str, runtime: Runtime) -> _Shared:
    settings, database = platform.settings.sandboxes, platform.database
    return _Shared(
        settings=settings,
        database=database,
        clock=platform.clock,
        node=node,
        runtime=runtime,
        transitions=platform.transitions,
        store=SqlSandboxStore(database, platform.transitions),
        ids=SandboxIds(),
        prices=_prices(settings),
        storage_bytes=int(settings.sandbox_storage_gb * GIGABYTE),
        url_of=platform.url_of,
    )


def _billing_routers(
    shared: _Shared,
    store: SqlBillingStore,
    make_bills: Callable[[], Awaitable[BillingReport]],
    guard: AccessGuard,
) -> Sequence[APIRouter]:
    clock, currency = shared.clock, shared.prices.currency
    statements = Statements(store, clock=clock, prices=shared.prices)
    usages = SqlUsageStore(shared.database)
    return (
        create_usage_router(usages, guard, clock=clock, prefix=PREFIX, currency=currency),
        create_billing_router(
            store, statements, make_bills, guard, prefix=PREFIX, currency=currency
        ),
    )


def _prices(settings: SandboxSettings) -> PriceList:
    return PriceList(
        vcpu=settings.price_vcpu_hour,
        memory_gb=settings.price_memory_gb_hour,
        storage_gb=settings.price_storage_gb_hour,
        currency=settings.currency,
    )


def _quota(settings: SandboxSettings) -> Resources:
    return Resources(settings.quota_sandboxes, settings.quota_cpu, settings.quota_memory_gb)


def _silent_for(settings: SandboxSettings) -> timedelta:
    return timedelta(seconds=_SILENT_AFTER * settings.ends_interval_sec)


def _recorder(shared: _Shared) -> RunRecorder:
    return RunRecorder(
        shared.store,
        shared.runtime,
        clock=shared.clock,
        ids=shared.ids,
        policy=RunPolicy(
            shared.prices,
            timedelta(days=shared.settings.snapshot_days),
            lambda running: shared.url_of(running.run_id.id, running.port),
        ),
    )


def _warm(shared: _Shared, data_dir: Path) -> WarmSandboxes:
    return WarmSandboxes(
        SqlTemplateStore(shared.database, shared.transitions),
        WarmRuns(shared.runtime, RunFolders(data_dir / _LOCAL), shared.clock),
        processes=shared.settings.sandbox_processes,
        storage_bytes=shared.storage_bytes,
    )


def _sandboxes(
    shared: _Shared, recorder: RunRecorder, variables: Variables, warm: WarmSandboxes | None
) -> Sandboxes:
    chosen = shared.settings
    return Sandboxes(
        shared.store,
        SqlTemplateStore(shared.database, shared.transitions),
        shared.runtime,
        recorder,
        variables,
        clock=shared.clock,
        ids=shared.ids,
        policy=SandboxPolicy(
            quota=_quota(chosen),
            per_account=chosen.sandboxes_per_account,
            prices=shared.prices,
            node=shared.node,
            processes=chosen.sandbox_processes,
            storage_bytes=shared.storage_bytes,
            silent_for=_silent_for(chosen),
        ),
        warm=warm,
    )


def _node_jobs(
    shared: _Shared,
    sandboxes: Sandboxes,
    recorder: RunRecorder,
    measurements: SqlMeasurementStore,
    warm: WarmSandboxes | None,
) -> Sequence[Job[Any]]:
    """Each node looks after what runs on it; the other jobs may run anywhere."""
    chosen, node = shared.settings, shared.node
    reconcile = Reconcile(
        shared.store,
        shared.runtime,
        sandboxes,
        recorder,
        clock=shared.clock,
        node=node,
        silent_for=_silent_for(chosen),
    )
    measure, snapshots = _measure(shared, measurements), _snapshots(shared)
    keeps = (
        ()
        if warm is None
        else (specs.WARM.job(chosen.warm_interval_sec, warm.keep, node=node, at_start=True),)
    )
    return (
        *keeps,
        specs.RECONCILE.job(chosen.reconcile_interval_sec, reconcile.run, node=node, at_start=True),
        specs.ENDS.job(chosen.ends_interval_sec, reconcile.collect_ends, node=node),
        specs.MEASURE.job(chosen.metrics_interval_sec, measure.run, node=node),
        specs.SNAPSHOTS.job(chosen.snapshots_interval_sec, snapshots.run, node=node),
    )


def _measure(shared: _Shared, measurements: SqlMeasurementStore) -> Measure:
    return Measure(
        measurements,
        shared.store,
        shared.runtime,
        clock=shared.clock,
        node=shared.node,
        storage_bytes=shared.storage_bytes,
        retention=timedelta(days=shared.settings.metrics_days),
    )


def _snapshots(shared: _Shared) -> ExpireSnapshots:
    return ExpireSnapshots(
        shared.store,
        shared.runtime,
        clock=shared.clock,
        ids=shared.ids,
        prices=shared.prices,
        warn_before=timedelta(hours=shared.settings.snapshot_warning_hours),
        retention=timedelta(days=shared.settings.snapshot_days),
    )


def _archive_usage(shared: _Shared) -> ArchiveUsage:
    store = SqlArchiveStore(shared.database, shared.transitions)
    return ArchiveUsage(store, prices=shared.prices, make_usage_id=shared.ids.usage)


def _billing_job(shared: _Shared, store: SqlBillingStore) -> Job[Any]:
    billing = MakeBills(
        store,
        shared.store,
        clock=shared.clock,
        prices=shared.prices,
        make_billing_id=partial(resource_id, "bil"),
        ids=shared.ids,
        archives=_archive_usage(shared),
    )
    return specs.BILLING.job(shared.settings.billing_interval_sec, billing.run)
