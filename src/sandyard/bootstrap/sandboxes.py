"""Sandboxes, their usage and their bills, wired to the runtime and the Platform's database."""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from sandyard.bootstrap.engines import e2b_key
from sandyard.kit.clock import Clock
from sandyard.kit.ids import resource_id
from sandyard.kit.jobs import Job, JobRunner
from sandyard.kit.sql import Database
from sandyard.platform.access import AccessGuard
from sandyard.platform.billing.http import create_billing_router
from sandyard.platform.billing.jobs import MakeBills
from sandyard.platform.billing.sql import SqlBillingStore
from sandyard.platform.measurements.http import create_metrics_router
from sandyard.platform.measurements.jobs import Measure
from sandyard.platform.measurements.sql import SqlMeasurementStore
from sandyard.platform.runtime.local.runtime import LocalRuntime
from sandyard.platform.runtime.local.specs import LocalPolicy
from sandyard.platform.runtime.ports import Runtime
from sandyard.platform.sandboxes.endings import Endings, SnapshotPolicy
from sandyard.platform.sandboxes.http import create_sandboxes_router
from sandyard.platform.sandboxes.jobs import KeepSnapshots, Reconcile
from sandyard.platform.sandboxes.model import Quota
from sandyard.platform.sandboxes.service import Sandboxes, SandboxPolicy
from sandyard.platform.sandboxes.sql import SqlSandboxStore
from sandyard.platform.usage.http import create_usage_router
from sandyard.platform.usage.listing import SqlUsageStore
from sandyard.platform.usage.model import PriceList
from sandyard.settings import E2bSettings, SandboxSettings

_GIGABYTE = 2**30
_usage_id = partial(resource_id, "usg")


@dataclass(frozen=True, slots=True)
class SandboxesWired:
    node: str
    sandboxes: Sandboxes
    runtime: Runtime
    local_runtime: Runtime
    """This machine's, wherever sandboxes run."""
    schedule: Sequence[Job[Any]]
    routers: Sequence[APIRouter]


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
    runtime = local_runtime = open_local_runtime(settings, data_dir)
    if settings.sandbox_runtime == "e2b":
        runtime = open_e2b_runtime(settings, e2b, data_dir, node=node)
    prices = PriceList(
        vcpu=settings.price_vcpu_hour,
        memory_gb=settings.price_memory_gb_hour,
        storage_gb=settings.price_storage_gb_hour,
    )
    storage_bytes = int(settings.sandbox_storage_gb * _GIGABYTE)
    store = SqlSandboxStore(database)
    endings = Endings(
        store,
        runtime,
        clock=clock,
        make_usage_id=_usage_id,
        policy=SnapshotPolicy(timedelta(days=settings.snapshot_days), prices),
    )
    sandboxes = Sandboxes(
        store,
        runtime,
        endings,
        clock=clock,
        make_sandbox_id=partial(resource_id, "sbx"),
        make_usage_id=_usage_id,
        policy=SandboxPolicy(
            quota=Quota(settings.quota_sandboxes, settings.quota_cpu, settings.quota_memory_gb),
            prices=prices,
            node=node,
            processes=settings.sandbox_processes,
            storage_bytes=storage_bytes,
        ),
    )
    reconcile = Reconcile(store, runtime, sandboxes, endings, clock=clock, node=node)
    measurements = SqlMeasurementStore(database, make_metric_id=partial(resource_id, "mtr"))
    measure = Measure(
        measurements,
        store,
        runtime,
        clock=clock,
        node=node,
        storage_bytes=storage_bytes,
        kept_for=timedelta(days=settings.metrics_days),
    )
    snapshots = KeepSnapshots(
        store,
        runtime,
        endings,
        clock=clock,
        make_usage_id=_usage_id,
        warn_before=timedelta(hours=settings.snapshot_warning_hours),
    )
    billing_store = SqlBillingStore(database)
    billing = MakeBills(
        billing_store,
        clock=clock,
        prices=prices,
        make_billing_id=partial(resource_id, "bil"),
        make_usage_id=_usage_id,
    )
    billing_job = Job("billing", settings.billing_interval_sec, billing.run)
    # What runs on a machine is looked after by that machine, whoever does the rest.
    schedule = (
        Job(f"reconcile {node}", settings.reconcile_interval_sec, reconcile.run, at_start=True),
        Job(f"ends {node}", settings.ends_interval_sec, reconcile.collect_ends),
        Job(f"measure {node}", settings.metrics_interval_sec, measure.run),
        Job(f"snapshots {node}", settings.snapshots_interval_sec, snapshots.run),
        billing_job,
    )
    routers = (
        create_sandboxes_router(sandboxes, guard, prefix=prefix),
        create_metrics_router(measurements, sandboxes, guard, clock=clock, prefix=prefix),
        create_usage_router(SqlUsageStore(database), guard, clock=clock, prefix=prefix),
        create_billing_router(
            billing_store, partial(runner.run, billing_job), guard, prefix=prefix
        ),
    )
    return SandboxesWired(node, sandboxes, runtime, local_runtime, schedule, routers)


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
    settings: SandboxSettings, e2b: E2bSettings, data_dir: Path, *, node: str
) -> Runtime:
    from sandyard.platform.runtime.e2b.control import E2bControl
    from sandyard.platform.runtime.e2b.runtime import E2bRuntime
    from sandyard.platform.runtime.e2b.starts import E2bPolicy

    control = E2bControl(
        e2b_key(e2b, needed_for="SANDBOX_RUNTIME=e2b"),
        api_url=e2b.e2b_api_url,
        sandbox_url=e2b.e2b_sandbox_url,
        port=e2b.e2b_port,
    )
    policy = E2bPolicy(
        node,
        template=e2b.e2b_template,
        prepare_timeout_sec=settings.sandbox_git_timeout_sec,
        listen_timeout_sec=settings.sandbox_listen_timeout_sec,
    )
    return E2bRuntime(data_dir / "runtime-e2b", control, policy)


def node_name(data_dir: Path) -> str:
    """The name of this data dir, which what runs from it is known by; made at the first start."""
    path = data_dir / "node"
    if not path.exists():
        data_dir.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"node.{os.getpid()}")
        draft.write_text(secrets.token_hex(8))
        try:
            os.link(draft, path)  # of two processes that start at once, one names it
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text().strip()
