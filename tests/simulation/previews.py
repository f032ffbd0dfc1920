"""Servers of Previews in one process: the real use cases, jobs, store adapter and local provider,
over a simulated engine, simulated machines or a simulated provider elsewhere."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar, cast

from sandyard.entrypoints.server.schedule import Schedule as Jobs
from sandyard.kit.clock import utc_time
from sandyard.kit.errors import SandyardError
from sandyard.kit.ids import resource_id
from sandyard.kit.jobs import Job, JobRunner
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.job_leases import SqlJobLeases
from sandyard.previews.attempts import Attempts
from sandyard.previews.files import FileLimits
from sandyard.previews.jobs import EndPreviews, SweepPreviews
from sandyard.previews.ports import PreviewProvider, Project
from sandyard.previews.project_files import FilePolicy, ProjectFiles
from sandyard.previews.providers.local import LocalPreviewProvider
from sandyard.previews.service import PreviewPolicy, Previews
from sandyard.previews.stores import tables
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.runtime.model import Limits
from sandyard.runtime.ports import Runtime
from sandyard.wiring.job_specs import PreviewsJobSpecs as Specs
from tests.simulation.engine import SqlEngine
from tests.simulation.loop import EPOCH, Process, SkewedClock
from tests.simulation.machines import Host, SimulatedRuntime
from tests.simulation.network import Network, unavailable
from tests.simulation.platform import NoAnswerError
from tests.simulation.preview_cloud import PreviewCloud, SimulatedPreviewProvider
from tests.simulation.schedule import Schedule

T = TypeVar("T")
Kind = Literal["local", "cloud"]

NODES = 3
SKEW_SEC = 0.4
TTL = timedelta(seconds=60)
ATTEMPT = timedelta(seconds=25)
_END_SEC = 5.0
_REMOVE_SEC = 15.0
_CALL_SEC = 40.0
_JOB_LEASE_SEC = 5.0
_LIMITS = Limits(1, 10**8, 32, 10**8, TTL.total_seconds())
_POLICY = PreviewPolicy(
    ttl=TTL,
    per_account=4,
    attempt_for=ATTEMPT,
    wait_sec=15,
)


@dataclass(frozen=True, slots=True)
class Serving:
    """The use cases of one server."""

    previews: Previews
    files: ProjectFiles


@dataclass(slots=True)
class SimulatedProject:
    project_id: str
    account_id: str
    created_at: datetime
    is_archived: bool = False
    is_deleted: bool = False
    is_cleared: bool = False


@dataclass(slots=True)
class Directory:
    """The projects and accounts that there are."""

    projects: dict[str, SimulatedProject] = field(default_factory=dict)
    deactivated: set[str] = field(default_factory=set)

    def add(self, account_id: str, now: float) -> SimulatedProject:
        made = SimulatedProject(resource_id("prj"), account_id, utc_time(now))
        self.projects[made.project_id] = made
        return made


class SimulatedDirectory:
    """One server's view of it: `ProjectLookup` and `AccountLookup`."""

    def __init__(self, directory: Directory, network: Network, process: Process) -> None:
        self._directory = directory
        self._network = network
        self._process = process

    async def find(self, account_id: str, project_id: str) -> SimulatedProject | None:
        return await self._call(lambda: self._find(account_id, project_id))

    def _find(self, account_id: str, project_id: str) -> SimulatedProject | None:
        found = self._directory.projects.get(project_id)
        is_theirs = found is not None and found.account_id == account_id
        return found if found and is_theirs and not found.is_deleted else None

    async def hold(
        self, account_id: str, project_id: str, work: Callable[[Project | None], Awaitable[T]]
    ) -> T:
        return await work(await self.find(account_id, project_id))

    async def deleted(self, project_ids: Collection[str]) -> AbstractSet[str]:
        projects = self._directory.projects
        return await self._call(
            lambda: {each for each in project_ids if each in projects and projects[each].is_deleted}
        )

    async def uncleared(self, *, after: str, limit: int) -> Sequence[str]:
        return await self._call(
            lambda: sorted(
                each.project_id
                for each in self._directory.projects.values()
                if each.is_deleted and not each.is_cleared and each.project_id > after
            )[:limit]
        )

    async def clear(self, project_ids: Collection[str]) -> None:
        def work() -> None:
            for each in project_ids:
                self._directory.projects[each].is_cleared = True

        await self._call(work)

    async def deactivated(self, account_ids: Collection[str]) -> AbstractSet[str]:
        return await self._call(lambda: self._directory.deactivated & set(account_ids))

    async def _call(self, work: Callable[[], T]) -> T:
        return await self._network.call(self._process, work, lost=unavailable)


@dataclass(slots=True)
class PreviewsWorld:
    """What all servers share, and what outlives them; the seed decides all that happens in it."""

    schedule: Schedule
    kind: Kind
    engine: SqlEngine
    to_engine: Network = field(init=False)
    to_provider: Network = field(init=False)
    cloud: PreviewCloud = field(init=False)
    directory: Directory = field(default_factory=Directory)
    nodes: "list[PreviewNode]" = field(init=False)

    def __post_init__(self) -> None:
        seed = self.schedule.seed
        rng = random.Random(f"{seed}:previews")
        self.to_engine = Network(random.Random(f"{seed}:engine"))
        self.to_provider = Network(random.Random(f"{seed}:provider"))
        self.cloud = PreviewCloud(random.Random(f"{seed}:cloud"))
        skew = SKEW_SEC if self.schedule.has("skew") else 0.0
        self.nodes = [PreviewNode(self, n, rng.uniform(-skew, skew)) for n in range(NODES)]
        now = EPOCH + asyncio.get_running_loop().time()
        for number in range(16):
            self.directory.add(f"{number % 4 + 1:012}", now)

    def database(self) -> Database:
        """Past all faults."""
        return self.engine.connect(Network(random.Random(0)), Process())


Call = Callable[["Serving"], Coroutine[Any, Any, Any]]


class PreviewNode:
    """A server that dies at any await and comes back, and its machines, which do not."""

    def __init__(self, world: PreviewsWorld, number: int, skew_sec: float) -> None:
        seed = world.schedule.seed
        self.name = f"node{number}"
        self.clock = SkewedClock(asyncio.get_running_loop(), skew_sec)
        rng = random.Random(f"{seed}:{self.name}")
        self.host = Host(self.name, self.clock.now, rng, None, goes_on=False)
        self.process = Process()
        self.process.is_dead = True
        self.failures: list[str] = []
        """Errors that no caller may ever see."""
        self._world = world
        self._serving: Serving | None = None

    def start(self) -> None:
        self.process = Process()
        with self.process.current():
            self._serving = self._wire()

    async def kill(self) -> None:
        await self.process.kill()

    async def call(self, work: Call) -> Any:
        """Its result. Raises what it refuses, NoAnswerError if it died meanwhile."""
        if self.process.is_dead or self._serving is None:
            await asyncio.sleep(0.05)
            raise NoAnswerError
        task = self.process.start(work(self._serving))
        await asyncio.wait([task], timeout=_CALL_SEC)
        if not task.done() or task.cancelled():
            raise NoAnswerError
        error = task.exception()
        if error is not None and not isinstance(error, SandyardError):
            self.failures.append(f"an unexpected error: {error!r}")
            raise NoAnswerError
        return task.result()

    def _wire(self) -> Serving:
        world, clock, process = self._world, self.clock, self.process
        database = world.engine.connect(world.to_engine, process)
        store = SqlPreviewStore(database)
        directory = SimulatedDirectory(world.directory, world.to_engine, process)
        provider = self._provider()
        attempts = Attempts(store, provider, directory, clock, TTL)
        ending = EndPreviews(store, attempts, directory, directory, clock)
        node = self.name if isinstance(provider, LocalPreviewProvider) else None
        schedule: list[Job[Any]] = [
            Specs.END_PREVIEWS.job(_END_SEC, ending.run_over_running, node=node),
            Specs.DELETED_PROJECTS.job(_REMOVE_SEC, ending.run_over_deleted),
        ]
        if isinstance(provider, LocalPreviewProvider):
            sweep = SweepPreviews(provider, store, clock)
            schedule.append(Specs.SWEEP.job(_END_SEC, sweep.run, node=node))
        runner = JobRunner(
            SqlJobLeases(database, tables.jobs),
            clock=clock,
            holder=resource_id("own"),
            lease_sec=_JOB_LEASE_SEC,
        )
        Jobs([(runner, job) for job in schedule]).start()
        policy = FilePolicy(FileLimits(20, 10**6, versions=5))
        previews = Previews(store, provider, directory, directory, clock=clock, policy=_POLICY)
        return Serving(previews, ProjectFiles(store, directory, clock=clock, policy=policy))

    def _provider(self) -> PreviewProvider:
        world = self._world
        if world.kind == "cloud":
            return SimulatedPreviewProvider(world.cloud, world.to_provider, self.process)
        runtime = SimulatedRuntime(self.host, world.to_provider, self.process)
        return LocalPreviewProvider(
            cast("Runtime", runtime),
            _LIMITS,
            node=self.name,
            url_of=lambda running: f"https://{running.run_id.id}.invalid",
            network="packages",
            hosts=".invalid",
        )
