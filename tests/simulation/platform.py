"""Nodes of the Platform in one process: the real use cases, jobs and store adapters, over a
simulated engine and simulated machines."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

from sandyard.entrypoints.server.schedule import Schedule as Jobs
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock
from sandyard.kit.errors import SandyardError
from sandyard.kit.ids import resource_id
from sandyard.kit.jobs import Job, JobRunner
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.job_leases import SqlJobLeases
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.accounts.model import create_account
from sandyard.platform.billing.jobs import MakeBills
from sandyard.platform.billing.service import Charges
from sandyard.platform.billing.sql import SqlBillingStore
from sandyard.platform.events.entities import platform_transitions
from sandyard.platform.projects.model import create_default_project
from sandyard.platform.quotas.model import Resources
from sandyard.platform.quotas.storage import StorageQuota
from sandyard.platform.sandboxes.archives.jobs import ExpireSnapshots
from sandyard.platform.sandboxes.archives.model import count_archives
from sandyard.platform.sandboxes.archives.usage import StorageUsage
from sandyard.platform.sandboxes.node import SandboxNode
from sandyard.platform.sandboxes.runs.deadlines import Deadlines
from sandyard.platform.sandboxes.runs.jobs import Reconcile
from sandyard.platform.sandboxes.runs.recorder import RunRecorder
from sandyard.platform.sandboxes.service import Sandboxes
from sandyard.platform.sandboxes.sql.store import SqlSandboxStore
from sandyard.platform.schema.tables import jobs
from sandyard.platform.templates.model import NewTemplate, create_official_template
from sandyard.platform.templates.sql import SqlTemplateStore
from sandyard.platform.usage.model import PriceList
from sandyard.platform.variables.certificates import SandboxAuthorities
from sandyard.platform.variables.cipher import Cipher
from sandyard.platform.variables.service import Variables
from sandyard.platform.variables.sql import SqlVariableStore
from sandyard.runtime.ports import Runtime
from sandyard.runtime.store.layers import NoLayers
from sandyard.wiring.job_specs import PlatformJobSpecs as Specs
from tests.simulation.engine import SqlEngine
from tests.simulation.loop import Process, SkewedClock
from tests.simulation.machines import FileStore, Host, SimulatedRuntime
from tests.simulation.network import Network
from tests.simulation.schedule import Schedule

NODES = 3
SKEW_SEC = 0.4
ENDS_SEC = 2.0
SILENT_SEC = 10.0
RECONCILE_SEC = 20.0
BILLING_SEC = 30.0
PRICES = PriceList(Decimal("0.0504"), Decimal("0.0162"), Decimal("0.000301"))
_CALL_SEC = 30.0
_JOB_LEASE_SEC = 5.0


@dataclass(slots=True)
class PlatformWorld:
    """What all nodes share, and what outlives them; the seed decides all that happens in it."""

    schedule: Schedule
    engine: SqlEngine
    to_engine: Network = field(init=False)
    nodes: "list[Node]" = field(init=False)
    store: FileStore | None = field(init=False)
    owners: list[Principal] = field(default_factory=list)
    template_id: str = ""

    def __post_init__(self) -> None:
        seed = self.schedule.seed
        rng = random.Random(f"{seed}:platform")
        self.to_engine = Network(random.Random(f"{seed}:engine"))
        self.store = rng.choice([None, FileStore()])
        goes_on = rng.choice([True, False])
        skew = SKEW_SEC if self.schedule.has("skew") else 0.0
        self.nodes = [
            Node(self, number, rng.uniform(-skew, skew), goes_on) for number in range(NODES)
        ]

    def database(self) -> Database:
        """Past all faults."""
        return self.engine.connect(Network(random.Random(0)), Process())

    async def fill(self, clock: Clock) -> None:
        """Some accounts, each with a project, and a template for all."""
        transitions = platform_transitions(self.database(), clock)
        cause = Cause.by("operator", clock)
        for number in range(3):
            account = create_account(
                account_id=f"{number + 1:012}",
                email=f"user-{number}@example.com",
                username=f"user-{number}",
                full_name=None,
                password_hash="none",
                role=Role.USER,
                cause=cause,
            )
            account_id = account.result.account_id
            project = create_default_project(
                project_id=resource_id("prj"), account_id=account_id, cause=cause
            )
            assert await transitions.apply(account, project)
            self.owners.append(Principal(account_id, Role.USER))
        new = NewTemplate(
            name="shop",
            description=None,
            category="web",
            language="python",
            min_cpu_required=1,
            min_memory_required=0.5,
            is_official=True,
            is_public=True,
            repository_url="builtin:python",
            tags=None,
        )
        made = create_official_template(new, template_id=resource_id("tpl"), cause=cause)
        assert await transitions.apply(made)
        self.template_id = made.result.template_id


@dataclass(frozen=True, slots=True)
class Services:
    """What one server is wired from."""

    node: SandboxNode
    sandboxes: Sandboxes
    deadlines: Deadlines
    charges: Charges
    bills: MakeBills
    snapshots: ExpireSnapshots
    jobs: Jobs


Call = Callable[[Services], Coroutine[Any, Any, Any]]


class NoAnswerError(Exception):
    """Nobody knows whether it was done."""


class Node:
    """A server that dies at any await and comes back, and its machines, which do not."""

    def __init__(self, world: PlatformWorld, number: int, skew_sec: float, goes_on: bool) -> None:
        seed = world.schedule.seed
        self.name = f"node-{number}"
        self.clock = SkewedClock(asyncio.get_running_loop(), skew_sec)
        self.host = Host(
            self.name,
            self.clock.now,
            random.Random(f"{seed}:{self.name}"),
            world.store,
            goes_on,
        )
        self.to_machines = Network(random.Random(f"{seed}:machines {number}"))
        self.process = Process()
        self.process.is_dead = True
        self.failures: list[str] = []
        """Errors that no caller may ever see."""
        self._world = world
        self._services: Services | None = None

    def start(self) -> None:
        self.process = Process()
        with self.process.current():
            self._services = self.services()
            self._services.jobs.start()

    async def kill(self) -> None:
        await self.process.kill()

    async def call(self, work: Call) -> Any:
        """Its result. Raises what it refuses, NoAnswerError if it died meanwhile."""
        if self.process.is_dead or self._services is None:
            await asyncio.sleep(0.05)
            raise NoAnswerError
        task = self.process.start(work(self._services))
        await asyncio.wait([task], timeout=_CALL_SEC)
        if not task.done() or task.cancelled():
            raise NoAnswerError
        error = task.exception()
        if error is not None and not isinstance(error, SandyardError):
            self.failures.append(f"an unexpected error: {error!r}")
            raise NoAnswerError
        return task.result()

    def services(self) -> Services:
        world, clock, process = self._world, self.clock, self.process
        database = world.engine.connect(world.to_engine, process)
        transitions = platform_transitions(database, clock)
        store = SqlSandboxStore(database, transitions)
        node = SandboxNode(
            name=self.name,
            store=store,
            runtime=cast("Runtime", SimulatedRuntime(self.host, self.to_machines, process)),
            clock=clock,
            prices=PRICES,
            quota=Resources(40, 40.0, 80.0, 400.0),
            per_account=10_000,
            processes=64,
            storage_bytes=10**9,
            silent_for=timedelta(seconds=SILENT_SEC),
            snapshot_retention=timedelta(days=7),
            preview_url=lambda running: f"https://{running.run_id.id}.invalid",
            start_wait_sec=20,
        )
        recorder = RunRecorder(node)
        templates = SqlTemplateStore(database, transitions)
        variables = Variables(
            SqlVariableStore(database, transitions),
            Cipher(["s"]),
            clock=clock,
            per_account=10,
            authorities=SandboxAuthorities(["s"]),
        )
        storage = StorageQuota(store, limit_gb=400.0, workspace_gb=1.0)
        sandboxes = Sandboxes(node, templates, recorder, variables, None, storage)
        billing = SqlBillingStore(database, transitions)
        archives = StorageUsage(
            templates, count_archives, prices=PRICES, make_usage_id=node.ids.usage
        )
        bills = MakeBills(
            billing, store, clock=clock, prices=PRICES, ids=node.ids, stored=[archives]
        )
        snapshots = ExpireSnapshots(node, NoLayers(), warn_before=timedelta(days=1))
        reconcile = Reconcile(node, sandboxes, recorder)
        runner = JobRunner(
            SqlJobLeases(database, jobs),
            clock=clock,
            holder=resource_id("own"),
            lease_sec=_JOB_LEASE_SEC,
        )
        timed: list[Job[Any]] = [
            Specs.RECONCILE.job(RECONCILE_SEC, reconcile.run, node=self.name, at_start=True),
            Specs.ENDS.job(ENDS_SEC, reconcile.collect_ends, node=self.name),
            Specs.BILLING.job(BILLING_SEC, bills.run),
        ]
        return Services(
            node,
            sandboxes,
            Deadlines(node, recorder),
            Charges(billing, clock=clock),
            bills,
            snapshots,
            Jobs([(runner, job) for job in timed]),
        )
