"""Sandboxes, their usage and their bills, wired to the runtime and the Platform's database."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from fastapi import APIRouter

from sandyard.kit.jobs import Job
from sandyard.kit.node import node_name
from sandyard.kit.observability.metrics import Gauges, Labelled, merged
from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.billing.http import create_billing_router
from sandyard.platform.billing.jobs import MakeBills
from sandyard.platform.billing.service import Charges, Statements
from sandyard.platform.billing.sql import SqlBillingStore
from sandyard.platform.measurements.http import create_metrics_router
from sandyard.platform.measurements.jobs import Measure
from sandyard.platform.measurements.sql import SqlMeasurementStore
from sandyard.platform.quotas.model import Resources
from sandyard.platform.quotas.service import sandbox_quotas
from sandyard.platform.quotas.storage import StorageQuota
from sandyard.platform.sandboxes.archives.jobs import ExpireSnapshots
from sandyard.platform.sandboxes.archives.model import count_archives
from sandyard.platform.sandboxes.archives.service import SandboxArchives
from sandyard.platform.sandboxes.archives.usage import StorageUsage
from sandyard.platform.sandboxes.http import create_admin_sandboxes_router, create_sandboxes_router
from sandyard.platform.sandboxes.model import Status
from sandyard.platform.sandboxes.network.gateway_targets import SandboxTargets
from sandyard.platform.sandboxes.node import SandboxNode
from sandyard.platform.sandboxes.runs.activity import Activity
from sandyard.platform.sandboxes.runs.call_machines import CallMachines
from sandyard.platform.sandboxes.runs.deadlines import Deadlines
from sandyard.platform.sandboxes.runs.jobs import Reconcile
from sandyard.platform.sandboxes.runs.programs import SandboxPrograms
from sandyard.platform.sandboxes.runs.recorder import RunRecorder
from sandyard.platform.sandboxes.runs.warm import WarmSandboxes
from sandyard.platform.sandboxes.service import Sandboxes
from sandyard.platform.sandboxes.sql.store import SqlSandboxStore
from sandyard.platform.sessions.commands.http import create_commands_router
from sandyard.platform.sessions.commands.service import Commands
from sandyard.platform.sessions.files.http import create_files_router
from sandyard.platform.sessions.files.service import SandboxFiles
from sandyard.platform.sessions.listening_ports.http import create_ports_router
from sandyard.platform.sessions.service import Sessions
from sandyard.platform.sessions.terminals.http import TerminalTokens, create_terminal_router
from sandyard.platform.sessions.terminals.service import Terminals
from sandyard.platform.templates.sql import SqlTemplateStore
from sandyard.platform.usage.http import create_usage_router
from sandyard.platform.usage.model import PriceList
from sandyard.platform.usage.sql import SqlUsageStore
from sandyard.platform.variables.http import create_sandbox_env_router
from sandyard.platform.variables.service import ParentSandboxes, Variables
from sandyard.platform.variables.sync import SecretSync
from sandyard.platform.volumes.contents import VolumeContents
from sandyard.platform.volumes.http import create_volumes_router
from sandyard.platform.wiring import kubernetes, runtimes
from sandyard.platform.wiring.images import ImagesWired
from sandyard.platform.wiring.local_runtime import runtime_folder
from sandyard.platform.wiring.shared import Shared
from sandyard.platform.wiring.volumes import VolumesWired
from sandyard.runtime.ports import Runtime, VolumeFiles
from sandyard.runtime.programs.warm import WarmRecords, WarmRuns
from sandyard.runtime.records.run_folder import WarmFolders
from sandyard.runtime.remote.backoff import Backoff
from sandyard.runtime.remote.http import HttpPool
from sandyard.runtime.store.archives import ArchiveFolder
from sandyard.runtime.store.layers import NoLayers
from sandyard.settings import SandboxSettings
from sandyard.wiring.addresses import PROGRAM_PORT
from sandyard.wiring.job_specs import PlatformJobSpecs as Specs

_SILENT_AFTER = 5
"""A node that misses this many runs of its job `ends` is silent."""


class SandboxesWired:
    def __init__(
        self, platform: Shared, variables: Variables, given_runtime: Runtime | None
    ) -> None:
        settings, e2b = platform.settings.sandboxes, platform.settings.e2b
        guard, clock, data_dir = platform.guard, platform.clock, platform.data_dir
        self.e2b_pool = HttpPool(Backoff())
        """Shared by all callers of E2B with the same key."""
        self.closers: list[Callable[[], Awaitable[None]]] = []
        self._gauges: list[Callable[[], Awaitable[Gauges]]] = []
        self.node = node_name(data_dir)
        layers = runtimes.open_layers(settings, data_dir)
        image_roots = runtimes.open_image_roots(settings, data_dir, clock, layers)
        self.local_runtime = given_runtime or runtimes.open_local_runtime(
            settings, data_dir, clock, layers, image_roots
        )
        """This machine's, even if sandboxes run at E2B; the cluster's, if they are Pods."""
        self.runtime = self.local_runtime
        volume_files: VolumeFiles | None = None
        warm_records: WarmRecords | None = None
        if settings.sandbox_runtime == "local":
            warm_records = WarmFolders(runtime_folder(data_dir))
            volume_files = runtimes.open_local_volumes(settings, data_dir, clock)
        if settings.sandbox_runtime == "e2b":
            self.runtime = runtimes.open_e2b_runtime(
                settings, e2b, data_dir, clock, node=self.node, pool=self.e2b_pool, layers=layers
            )
        if settings.sandbox_runtime == "kubernetes":
            cluster = platform.settings.kubernetes
            machines = kubernetes.open_machines(settings, cluster, data_dir, clock, layers)
            self.closers.append(machines.close)
            self._gauges.append(partial(kubernetes.pod_gauges, machines))
            volume_files, warm_records = machines.volumes, machines.warm
            self.runtime = self.local_runtime = kubernetes.open_runtime(
                machines, settings, data_dir, clock, layers
            )
            self.node = f"kubernetes-{cluster.kubernetes_namespace}"  # one for all servers
        self.store = SqlSandboxStore(platform.database, platform.transitions)
        node = _node(platform, self.node, self.store, self.runtime)
        self.recorder, self.activity = RunRecorder(node), Activity(self.store, clock=clock)
        self.sessions = Sessions(node, self.activity)
        self.commands = Commands(self.sessions, variables)
        templates = SqlTemplateStore(platform.database, platform.transitions)
        warm = None
        if warm_records is not None:
            warm = WarmSandboxes(node, templates, WarmRuns(self.runtime, warm_records, clock))
        workspace_gb = settings.sandbox_storage_gb
        self.storage = StorageQuota(
            self.store, limit_gb=node.quota.storage_gb, workspace_gb=workspace_gb
        )
        self.sandboxes = Sandboxes(node, templates, self.recorder, variables, warm, self.storage)
        self.programs = SandboxPrograms(node, templates, self.recorder, variables)
        self.deadlines = Deadlines(node, self.recorder)
        reserve = runtimes.disk_reserve(settings, data_dir)
        self.uploads = ArchiveFolder(data_dir / "uploads", reserve, layers, "uploads")
        """Uploaded files for template builds."""
        self.builds = data_dir / "builds"
        """The folder of their records and logs."""
        self.storage.add(self.uploads.bytes_of)
        self.measurements = SqlMeasurementStore(platform.database)
        images = ImagesWired(platform, node, image_roots, self.storage)
        self.images = images.images
        volumes = VolumesWired(platform, node, self.storage, volume_files)
        self.volumes = volumes.volumes
        archive_usage = StorageUsage(
            templates, count_archives, prices=node.prices, make_usage_id=node.ids.usage
        )
        self.archives = SandboxArchives(node, archive_usage, self.storage)
        billing_store = SqlBillingStore(platform.database, platform.transitions)
        billing = MakeBills(
            *(billing_store, self.store),
            clock=clock,
            prices=node.prices,
            ids=node.ids,
            stored=(archive_usage, images.usage, volumes.usage),
        )
        billing_job = Specs.BILLING.job(settings.billing_interval_sec, billing.run)
        self.schedule = (
            *self._node_jobs(settings, node, warm, layers, variables),
            images.job,
            *volumes.jobs,
            billing_job,
        )
        calls = CallMachines(node.runtime)
        files = SandboxFiles(node, self.sessions, calls, self.recorder, self.storage)
        self.volume_contents = VolumeContents(self.volumes, self.sessions, calls)
        self.routers = (
            create_sandboxes_router(self.sandboxes, self.programs, self.deadlines, guard),
            create_admin_sandboxes_router(self.sandboxes, guard),
            create_sandbox_env_router(variables, ParentSandboxes(node), guard),
            *_session_routers(platform, self.sessions, files, self.commands),
            create_metrics_router(self.measurements, self.sandboxes, guard, clock=clock),
            create_volumes_router(self.volumes, guard),
            *_billing_routers(platform, node.prices, billing_store, billing_job),
        )
        self.quotas = partial(sandbox_quotas, self.store, node.quota, self.storage)
        program_port = e2b.e2b_port if settings.sandbox_runtime == "e2b" else PROGRAM_PORT
        self.targets = SandboxTargets(
            node, self.sandboxes, self.activity, program_port=program_port
        )
        """For the gateway."""
        self._gauges.append(partial(sandbox_gauges, node))

    async def gauges(self) -> Gauges:
        return merged([await read() for read in self._gauges])

    def _node_jobs(
        self,
        settings: SandboxSettings,
        node: SandboxNode,
        warm: WarmSandboxes | None,
        layers: NoLayers,
        variables: Variables,
    ) -> Sequence[Job[Any]]:
        """Each node looks after what runs on it; the other jobs may run anywhere."""
        secrets = SecretSync(node, variables) if settings.sandbox_runtime == "local" else None
        reconcile = Reconcile(node, self.sandboxes, self.recorder, secrets)
        measure = Measure(self.measurements, node, retention=timedelta(days=settings.metrics_days))
        warn_before = timedelta(hours=settings.snapshot_warning_hours)
        snapshots = ExpireSnapshots(node, layers, warn_before=warn_before)
        timed = [
            (Specs.RECONCILE, settings.reconcile_interval_sec, reconcile.run),
            (Specs.ENDS, settings.ends_interval_sec, reconcile.collect_ends),
            (Specs.MEASURE, settings.metrics_interval_sec, measure.run),
            (Specs.SNAPSHOTS, settings.snapshots_interval_sec, snapshots.run),
        ]
        if warm is not None:
            timed.insert(0, (Specs.WARM, settings.warm_interval_sec, warm.keep))
        at_start = (Specs.WARM, Specs.RECONCILE)
        return [
            spec.job(interval_sec, run, node=node.name, at_start=spec in at_start)
            for spec, interval_sec, run in timed
        ]


def _node(platform: Shared, name: str, store: SqlSandboxStore, runtime: Runtime) -> SandboxNode:
    settings = platform.settings.sandboxes
    return SandboxNode(
        name=name,
        store=store,
        runtime=runtime,
        clock=platform.clock,
        prices=PriceList(
            vcpu=settings.price_vcpu_hour,
            memory_gb=settings.price_memory_gb_hour,
            storage_gb=settings.price_storage_gb_hour,
            currency=settings.currency,
        ),
        quota=_quota(settings),
        per_account=settings.sandboxes_per_account,
        processes=settings.sandbox_processes,
        storage_bytes=int(settings.sandbox_storage_gb * GIGABYTE),
        silent_for=timedelta(seconds=_SILENT_AFTER * settings.ends_interval_sec),
        snapshot_retention=timedelta(days=settings.snapshot_days),
        preview_url=lambda running: platform.url_of(running.run_id.id, running.port),
    )


def _quota(settings: SandboxSettings) -> Resources:
    running_gb = settings.quota_sandboxes * settings.sandbox_storage_gb
    return Resources(
        settings.quota_sandboxes,
        settings.quota_cpu,
        settings.quota_memory_gb,
        settings.quota_storage_gb or 2 * running_gb,
    )


def _billing_routers(
    platform: Shared, prices: PriceList, store: SqlBillingStore, job: Job[Any]
) -> Sequence[APIRouter]:
    guard, clock, currency = platform.guard, platform.clock, prices.currency
    statements = Statements(store, clock=clock, prices=prices)
    charges = Charges(store, clock=clock)
    make_bills = partial(platform.runner.run, job)
    usages = SqlUsageStore(platform.database)
    return (
        create_usage_router(usages, guard, clock=clock, currency=currency),
        create_billing_router(store, statements, charges, make_bills, guard, currency=currency),
    )


def _session_routers(
    platform: Shared, sessions: Sessions, files: SandboxFiles, commands: Commands
) -> Sequence[APIRouter]:
    guard = platform.guard
    return (
        create_commands_router(commands, guard),
        create_files_router(files, guard),
        create_ports_router(sessions, guard, url_of=platform.url_of),
        create_terminal_router(
            sessions,
            Terminals(sessions, commands),
            TerminalTokens(guard, platform.settings.secret("jwt_secret")),
            guard,
            allowed_origins=platform.settings.server.allowed_origins,
        ),
    )


async def sandbox_gauges(node: SandboxNode) -> Gauges:
    counts = await node.store.count_active(unseen_since=node.now() - node.silent_for)
    by_status: dict[tuple[str, ...], float] = {
        (str(status),): counts.by_status.get(status, 0)
        for status in (Status.STARTING, Status.RUNNING)
    }
    return {
        "sandyard_sandboxes_active": (
            "Sandboxes that start or run",
            Labelled(("status",), by_status),
        ),
        "sandyard_sandboxes_silent": (
            "Sandboxes that run by their rows and whose node gives no sign of life",
            counts.silent,
        ),
    }
