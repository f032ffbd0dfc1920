"""One run of Previews: servers, people who sync their projects, and troubles from a schedule, and
what became of them."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from sandyard.kit.changes.events import LoggedEvent
from sandyard.kit.errors import ConflictError, NotFoundError, UnavailableError
from sandyard.kit.sql.events import SqlEventLog
from sandyard.previews.errors import PreviewElsewhereError
from sandyard.previews.files import ChangeSet
from sandyard.previews.model import Preview
from sandyard.previews.service import Synced
from sandyard.previews.status_model import PreviewStatus, StatusReport
from sandyard.previews.stores import tables
from sandyard.previews.stores.schema import MIGRATIONS
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.previews.verification import verify
from tests.histories.life_calls import LifeCall, LifeHistory
from tests.histories.lives import judge_previews
from tests.simulation.engine import SharedSqlite, SqlEngine
from tests.simulation.loop import EPOCH, VirtualTimeLoop
from tests.simulation.network import CALM, STORM, Network
from tests.simulation.outcome import LifeOutcome
from tests.simulation.platform import NoAnswerError
from tests.simulation.previews import (
    SKEW_SEC,
    Call,
    Kind,
    PreviewNode,
    PreviewsWorld,
    Serving,
    SimulatedProject,
)
from tests.simulation.schedule import Schedule
from tests.simulation.virtual import run_in_virtual_time

_AT_ONCE = 12
_TRIES = 6
_QUIET_SEC = 60.0
"""After the last trouble: by then every attempt is over, and the jobs have put everything right."""
_LATE_SEC = 2 * SKEW_SEC + 0.01
_KILL_SEC = 25.0
"""So long after the decision to end it a sandbox may run: its provider is away for a while."""
_WEIGHTS = {"sync": 40, "status": 25, "stop": 14, "write": 12, "delete": 2, "deactivate": 1}


def simulate_previews(
    schedule: Schedule,
    kind: Kind,
    engine: SqlEngine | None = None,
    loop: type[VirtualTimeLoop] = VirtualTimeLoop,
) -> LifeOutcome:
    """On SQLite in memory, or on an empty database of another engine."""
    chosen = engine or SharedSqlite.migrated(MIGRATIONS)
    return run_in_virtual_time(schedule.seed, lambda: _simulate(schedule, kind, chosen), loop)


async def _simulate(schedule: Schedule, kind: Kind, engine: SqlEngine) -> LifeOutcome:
    world = PreviewsWorld(schedule, kind, engine)
    for node in world.nodes:
        node.start()
    people = _People(world)
    troubles = _Troubles(world, random.Random(f"{schedule.seed}:troubles"))
    going_wrong = asyncio.create_task(troubles.go_on())
    await people.run(schedule.operations)
    going_wrong.cancel()
    troubles.end()
    await asyncio.sleep(_QUIET_SEC)
    for node in world.nodes:
        await node.kill()
    database = world.database()
    log = SqlEventLog(database, tables.events, part="previews", subjects=tables.SUBJECTS)
    store = SqlPreviewStore(database)
    problems = [each for node in world.nodes for each in node.failures]
    verified = await verify(store, log)
    problems += [f"{each.subject} {each.message}" for each in verified.problems]
    told = await _told(log)
    problems += _wrong_records(world, await store.page(after="", limit=10_000), told)
    problems += judge_previews(people.history)
    await engine.close()
    faults = world.to_engine.happened + world.to_provider.happened
    return LifeOutcome(
        schedule, people.done, people.history, told, faults, troubles.kills, problems
    )


async def _told(log: SqlEventLog) -> list[LoggedEvent]:
    return [each async for batch in log.everything() for each in batch]


@dataclass(frozen=True, slots=True)
class _Life:
    """A preview's sandbox as it really was."""

    sandbox_id: str
    project_id: str
    began_at: float
    ended_at: float


def _lives(world: PreviewsWorld) -> list[_Life]:
    found = [
        _Life(each.sandbox_id, each.project_id, each.started_at, each.ends_at)
        for each in world.cloud.lives.values()
    ]
    for node in world.nodes:
        for run_id in list(node.host.machines):
            node.host.look(run_id)
        for life in node.host.lives:
            ended_at = float("inf") if life.ended_at is None else life.ended_at
            name = f"{life.run_id.id}.{life.run_id.attempt}"
            found.append(_Life(name, life.run_id.id, life.started_at, ended_at))
    return sorted(found, key=lambda each: each.began_at)


def _wrong_records(
    world: PreviewsWorld, previews: Sequence[Preview], log: list[LoggedEvent]
) -> Iterator[str]:
    lives = _lives(world)
    by_project: dict[str, list[_Life]] = {}
    for life in lives:
        by_project.setdefault(life.project_id, []).append(life)
    for project_id, of_project in by_project.items():
        for one, other in pairwise(of_project):
            if one.ended_at > other.began_at + _LATE_SEC:
                yield f"{project_id} had {one.sandbox_id} and {other.sandbox_id} at once"
    now = EPOCH + asyncio.get_running_loop().time()
    recorded = {each.project_id: each for each in previews}
    for life in lives:
        if life.ended_at > now + _LATE_SEC and not _is_recorded(life, recorded, world):
            yield f"{life.sandbox_id} runs, and nobody needs it"
    for each in previews:
        if each.attempt is not None:
            yield f"the attempt {each.attempt.id} of {each.project_id} has no outcome"
    yield from _ended_unseen(lives, log)


def _is_recorded(life: _Life, recorded: Mapping[str, Preview], world: PreviewsWorld) -> bool:
    project = world.directory.projects[life.project_id]
    is_wanted = not project.is_deleted and project.account_id not in world.directory.deactivated
    preview = recorded.get(life.project_id)
    return is_wanted and preview is not None and preview.has_sandbox(life.sandbox_id)


def _ended_unseen(lives: list[_Life], log: list[LoggedEvent]) -> Iterator[str]:
    """No end is written of a sandbox that runs on."""
    by_id = {each.sandbox_id: each for each in lives}
    for logged in log:
        info = logged.event.data.get("info")
        if logged.event.kind != "preview.ended" or info is None:
            continue
        life = by_id.get(info["sandbox_id"])
        decided_at = logged.event.at_ms / 1000
        if life is not None and life.ended_at > decided_at + _KILL_SEC:
            yield f"{life.sandbox_id} is recorded as ended, but ran until {life.ended_at:.3f}"


@dataclass(slots=True)
class _Troubles:
    world: PreviewsWorld
    rng: random.Random
    kills: int = 0
    back_at: dict[str, float] = field(default_factory=dict)

    async def go_on(self) -> None:
        rng, world = self.rng, self.world
        while True:
            await asyncio.sleep(rng.uniform(0.3, 3))
            for network in self._networks():
                network.faults = world.schedule.allowed(rng.choice([CALM, STORM]))
                network.is_away = world.schedule.has("outages") and rng.random() < 0.04
            if world.schedule.has("kills"):
                await self._kill_or_bring_back(rng.choice(world.nodes))

    def end(self) -> None:
        for network in self._networks():
            network.faults, network.is_away = CALM, False
        for node in self.world.nodes:
            if node.process.is_dead:
                node.start()

    async def _kill_or_bring_back(self, node: PreviewNode) -> None:
        now = asyncio.get_running_loop().time()
        if node.process.is_dead:
            if self.back_at[node.name] <= now:
                node.start()
        elif self.rng.random() < 0.2:
            await node.kill()
            self.kills += 1
            self.back_at[node.name] = now + self.rng.choice([0, 0, 5, 40])

    def _networks(self) -> tuple[Network, Network]:
        return self.world.to_engine, self.world.to_provider


@dataclass(slots=True)
class _People:
    """They sync, look at and stop previews, some at once, and write down what they are answered."""

    world: PreviewsWorld
    history: LifeHistory = field(default_factory=lambda: LifeHistory("previews"))
    begun: int = 0
    done: int = 0

    async def run(self, operations: int) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(_AT_ONCE):
                group.create_task(self._work(number, operations))

    async def _work(self, number: int, operations: int) -> None:
        rng = random.Random(f"{self.world.schedule.seed}:person {number}")
        while self.begun < operations:
            self.begun += 1
            [choice] = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
            await self._operation(choice, rng, f"file-{number}-{self.begun}")
            self.done += 1
            await asyncio.sleep(rng.uniform(0.02, 1.0))

    async def _operation(self, choice: str, rng: random.Random, name: str) -> None:
        directory = self.world.directory
        projects = [each for each in directory.projects.values() if not each.is_deleted]
        project = rng.choice(projects)
        match choice:
            case "delete":
                project.is_deleted = True
                directory.add(project.account_id, self._now())
            case "deactivate":
                directory.deactivated ^= {project.account_id}
            case _:
                calls = 2 if choice == "sync" and rng.random() < 0.4 else 1
                work = _about(choice, project, name)
                await asyncio.gather(
                    *(self._insist(choice, project.project_id, rng, work) for _ in range(calls))
                )

    async def _insist(self, kind: str, subject: str, rng: random.Random, work: Call) -> None:
        """Until it is answered, or some tries have failed: at the node that has it, if that is
        known to another."""
        for _ in range(_TRIES):
            begin = self._now()
            node = rng.choice(self.world.nodes)
            try:
                result = await node.call(work)
            except PreviewElsewhereError:
                continue
            except (NoAnswerError, UnavailableError):
                self.history.calls.append(LifeCall(kind, subject, begin))
                await asyncio.sleep(rng.uniform(0.05, 0.5))
                continue
            except (ConflictError, NotFoundError) as error:
                self._add(LifeCall(kind, subject, begin, self._now(), error.code))
                return
            self._add(_answered(LifeCall(kind, subject, begin, self._now(), "ok"), result))
            return

    def _add(self, call: LifeCall) -> None:
        self.history.calls.append(call)

    def _now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()


def _answered(call: LifeCall, result: Any) -> LifeCall:
    told = (call.kind, call.subject, call.begin, call.end, "ok")
    match result:
        case Synced():
            return LifeCall(*told, "running", made=result.info.sandbox_id)
        case StatusReport() if result.status is not PreviewStatus.UNKNOWN:
            made = result.info.sandbox_id if result.info else ""
            is_sure = not result.is_stale
            return LifeCall(*told, str(result.status) if is_sure else "", made=made)
    return call


def _about(choice: str, project: SimulatedProject, name: str) -> Call:
    by = project.account_id
    changes = ChangeSet({name[-6:]: name.encode()}, is_whole=True)
    calls: dict[str, Callable[[Serving], Awaitable[Any]]] = {
        "sync": lambda it: it.previews.sync(project.project_id, actor="account:1", account_id=by),
        "status": lambda it: it.previews.status(project.project_id, account_id=by),
        "stop": lambda it: it.previews.stop(project.project_id, actor="account:1", account_id=by),
        "write": lambda it: it.files.change(
            project.project_id, changes, actor="account:1", account_id=by
        ),
    }

    async def work(serving: Serving) -> Any:
        return await calls[choice](serving)

    return work
