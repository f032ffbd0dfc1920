"""Sandboxes, their usage and their bills, wired to the runtime and the Platform's database."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from sandyard.bootstrap.engines import e2b_key
from sandyard.bootstrap.specs import platform as specs
from sandyard.kit.clock import Clock
from sandyard.kit.e2b_backoff import Backoff
from sandyard.kit.ids import resource_id
from sandyard.kit.jobs import Job, JobRunner
from sandyard.kit.node import node_name
from sandyard.kit.sizes import GIGABYTE
from sandyard.kit.sql import Database
from sandyard.kit.sql_transitions import SqlTransitions
from sandyard.platform.access import AccessGuard
from sandyard.platform.billing.http import create_billing_router
from sandyard.platform.billing.jobs import MakeBills
from sandyard.platform.billing.service import Statements
from sandyard.platform.billing.sql import SqlBillingStore
from sandyard.platform.entities import platform_transitions
from sandyard.platform.measurements.http import create_metrics_router
from sandyard.platform.measurements.jobs import Measure
from sandyard.platform.measurements.sql import SqlMeasurementStore
from sandyard.platform.sandboxes.admin_http import create_admin_sandboxes_router
from sandyard.platform.sandboxes.http import create_sandboxes_router
from sandyard.platform.sandboxes.ids import SandboxIds
from sandyard.platform.sandboxes.jobs import ExpireSnapshots, Reconcile
from sandyard.platform.sandboxes.model import Resources
from sandyard.platform.sandboxes.quota import SandboxQuotas
from sandyard.platform.sandboxes.runs import RunPolicy, RunRecorder
from sandyard.platform.sandboxes.service import Sandboxes, SandboxPolicy
from sandyard.platform.sandboxes.sql import SqlSandboxStore
from sandyard.platform.templates.sql import SqlTemplateStore
from sandyard.platform.usage.http import create_usage_router
from sandyard.platform.usage.model import PriceList
from sandyard.platform.usage.sql import SqlUsageStore
from sandyard.runtime.local.runtime import LocalRuntime
from sandyard.runtime.local.specs import LocalPolicy
from sandyard.runtime.ports import Runtime
from sandyard.settings import E2bSettings, SandboxSettings

_SILENT_AFTER = 5
"""A node that misses so many runs of its job `ends` is silent."""


@dataclass(frozen=True, slots=True)
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
    e2b_backoff: Backoff
    """Shared by all that call E2B with the one key."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """What sandboxes, measurements and bills are built from."""

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


def build_sandboxes(
    settings: SandboxSettings,
    database: Database,
    guard: AccessGuard,
    runner: JobRunner,
    *,
    e2b: E2bSettings,
    clock: Clock,
    data_dir: Path,
    prefix: str,
) -> SandboxesWired:
    node = node_name(data_dir)
    e2b_backoff = Backoff()
    runtime = local_runtime = open_local_runtime(settings, data_dir)
    if settings.sandbox_runtime == "e2b":
        runtime = open_e2b_runtime(settings, e2b, data_dir, node=node, backoff=e2b_backoff)
    transitions = platform_transitions(database, clock)
    shared = _Shared(
        settings,
        database,
        clock,
        node,
        runtime,
        transitions,
        SqlSandboxStore(database, transitions),
        SandboxIds(),
        _prices(settings),
        int(settings.sandbox_storage_gb * GIGABYTE),
    )
    recorder = _recorder(shared)
    sandboxes = _sandboxes(shared, recorder)
    measurements = SqlMeasurementStore(database, make_metric_id=partial(resource_id, "mtr"))
    billing_store = SqlBillingStore(database, transitions)
    billing_job = _billing_job(shared, billing_store)
    routers = (
        create_sandboxes_router(sandboxes, guard, prefix=prefix),
        create_admin_sandboxes_router(sandboxes, guard, prefix=prefix),
        create_metrics_router(measurements, sandboxes, guard, clock=clock, prefix=prefix),
        create_usage_router(SqlUsageStore(database), guard, clock=clock, prefix=prefix),
        create_billing_router(
            billing_store,
            Statements(billing_store, clock=clock, prices=shared.prices),
            partial(runner.run, billing_job),
            guard,
            prefix=prefix,
        ),
    )
    schedule = (*_node_jobs(shared, sandboxes, recorder, measurements), billing_job)
    quotas = SandboxQuotas(shared.store, _quota(settings))
    return SandboxesWired(
        node, sandboxes, recorder, runtime, local_runtime, schedule, routers, quotas, e2b_backoff
    )


def _prices(settings: SandboxSettings) -> PriceList:
    return PriceList(
        vcpu=settings.price_vcpu_hour,
        memory_gb=settings.price_memory_gb_hour,
        storage_gb=settings.price_storage_gb_hour,
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
        policy=RunPolicy(shared.prices, timedelta(days=shared.settings.snapshot_days)),
    )


def _sandboxes(shared: _Shared, recorder: RunRecorder) -> Sandboxes:
    chosen = shared.settings
    return Sandboxes(
        shared.store,
        SqlTemplateStore(shared.database, shared.transitions),
        shared.runtime,
        recorder,
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
    )


def _node_jobs(
    shared: _Shared, sandboxes: Sandboxes, recorder: RunRecorder, measurements: SqlMeasurementStore
) -> Sequence[Job[Any]]:
    """What runs on a node is looked after by that node, whoever does the rest."""
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
    return (
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
        kept_for=timedelta(days=shared.settings.metrics_days),
    )


def _snapshots(shared: _Shared) -> ExpireSnapshots:
    return ExpireSnapshots(
        shared.store,
        shared.runtime,
        clock=shared.clock,
        ids=shared.ids,
        prices=shared.prices,
        warn_before=timedelta(hours=shared.settings.snapshot_warning_hours),
        kept_for=timedelta(days=shared.settings.snapshot_days),
    )


def _billing_job(shared: _Shared, store: SqlBillingStore) -> Job[Any]:
    billing = MakeBills(
        store,
        shared.store,
        clock=shared.clock,
        prices=shared.prices,
        make_billing_id=partial(resource_id, "bil"),
        ids=shared.ids,
    )
    return specs.BILLING.job(shared.settings.billing_interval_sec, billing.run)


def open_local_runtime(settings: SandboxSettings, data_dir: Path) -> Runtime:
    return LocalRuntime(
        data_dir / "runtime",
        LocalPolicy(
            isolation=settings.sandbox_isolation,
            allowed_networks=tuple(filter(None, settings.sandbox_git_networks.split(","))),
            git_ca_file=Path(ca_file) if (ca_file := settings.sandbox_git_ca_file) else None,
            prepare_timeout_sec=settings.sandbox_git_timeout_sec,
            listen_timeout_sec=settings.sandbox_listen_timeout_sec,
        ),
    )


def open_e2b_runtime(
    settings: SandboxSettings, e2b: E2bSettings, data_dir: Path, *, node: str, backoff: Backoff
) -> Runtime:
    from sandyard.runtime.e2b.control import E2bControl
    from sandyard.runtime.e2b.runtime import E2bRuntime
    from sandyard.runtime.e2b.starts import E2bPolicy

    control = E2bControl(
        e2b_key(e2b, needed_for="SANDBOX_RUNTIME=e2b"),
        api_url=e2b.e2b_api_url,
        sandbox_url=e2b.e2b_sandbox_url,
        port=e2b.e2b_port,
        backoff=backoff,
    )
    policy = E2bPolicy(
        node,
        template=e2b.e2b_template,
        prepare_timeout_sec=settings.sandbox_git_timeout_sec,
        listen_timeout_sec=settings.sandbox_listen_timeout_sec,
    )
    return E2bRuntime(data_dir / "runtime-e2b", control, policy)
