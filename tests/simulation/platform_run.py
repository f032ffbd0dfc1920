"""One run of the Platform: nodes, owners of sandboxes and troubles from a schedule, and what became
of them."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from sandyard.kit.changes.events import EventQuery, LoggedEvent
from sandyard.kit.errors import SandyardError, UnavailableError
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.billing.model import Charge
from sandyard.platform.events.entities import platform_events
from sandyard.platform.events.verification import verify_platform
from sandyard.platform.sandboxes.errors import SandboxElsewhereError
from sandyard.platform.sandboxes.model import Changes, NewSandbox, Sandbox
from sandyard.platform.schema.migrations import MIGRATIONS
from sandyard.platform.usage.model import ServiceType
from tests.histories.life_calls import LifeCall, LifeHistory
from tests.histories.lives import judge_runs
from tests.simulation.engine import SharedSqlite, SqlEngine
from tests.simulation.loop import EPOCH, VirtualTimeLoop
from tests.simulation.network import CALM, STORM, Network
from tests.simulation.outcome import LifeOutcome
from tests.simulation.platform import Call, NoAnswerError, Node, PlatformWorld, Services
from tests.simulation.platform_truth import wrong_records, wrong_statements
from tests.simulation.schedule import Schedule
from tests.simulation.virtual import run_in_virtual_time

_AT_ONCE = 15
_TRIES = 6
_BEFORE_MIDNIGHT = 57_480.0
"""The run begins two minutes before the end of a day."""
_QUIET_SEC = 100.0
"""After the last trouble: by then the jobs have put everything right."""
_ADMIN = Principal("0" * 12, Role.ADMIN, acts_as="operator")
_WEIGHTS = {
    "create": 18,
    "start": 24,
    "stop": 16,
    "get": 12,
    "extend": 7,
    "shorten": 5,
    "change": 4,
    "recycle": 2,
    "end": 4,
    "bill": 1,
    "charge": 2,
}


def simulate_platform(
    schedule: Schedule,
    engine: SqlEngine | None = None,
    loop: type[VirtualTimeLoop] = VirtualTimeLoop,
) -> LifeOutcome:
    """On SQLite in memory, or on an empty database of another engine."""
    chosen = engine or SharedSqlite.migrated(MIGRATIONS)
    return run_in_virtual_time(schedule.seed, lambda: _simulate(schedule, chosen), loop)


async def _simulate(schedule: Schedule, engine: SqlEngine) -> LifeOutcome:
    await asyncio.sleep(_BEFORE_MIDNIGHT)
    world = PlatformWorld(schedule, engine)
    await world.fill(world.nodes[0].clock)
    for node in world.nodes:
        node.start()
    owners = _Owners(world)
    troubles = _Troubles(world, random.Random(f"{schedule.seed}:troubles"))
    going_wrong = asyncio.create_task(troubles.go_on())
    await owners.run(schedule.operations)
    going_wrong.cancel()
    await troubles.end()
    await asyncio.sleep(_QUIET_SEC)
    for node in world.nodes:
        await node.kill()
    problems = [each for node in world.nodes for each in node.failures]
    problems += await _judge(world, owners.history)
    networks = [world.to_engine, *(node.to_machines for node in world.nodes)]
    faults = sum((each.happened for each in networks), Counter[str]())
    log = await _log(world)
    await engine.close()
    return LifeOutcome(schedule, owners.done, owners.history, log, faults, troubles.kills, problems)


async def _judge(world: PlatformWorld, history: LifeHistory) -> list[str]:
    database = world.database()
    verified = await verify_platform(database)
    problems = [f"{each.subject} {each.message}" for each in verified.problems]
    problems += await wrong_records(world)
    problems += await wrong_statements(world)
    return problems + judge_runs(history)


async def _log(world: PlatformWorld) -> list[LoggedEvent]:
    found: list[LoggedEvent] = []
    log, cursor = platform_events(world.database()), None
    while True:
        page = await log.page(EventQuery(), limit=1000, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


@dataclass(slots=True)
class _Troubles:
    world: PlatformWorld
    rng: random.Random
    kills: int = 0
    back_at: dict[str, float] = field(default_factory=dict)

    async def go_on(self) -> None:
        """Every second or so other things go wrong; a node dies for a moment, or is silent for
        longer than its machines live."""
        rng, world = self.rng, self.world
        while True:
            await asyncio.sleep(rng.uniform(0.3, 3))
            faults = world.schedule.allowed(rng.choice([CALM, STORM]))
            for network in self._networks():
                network.faults = faults
                network.is_away = world.schedule.has("outages") and rng.random() < 0.03
            if world.store is not None:
                world.store.is_away = world.schedule.has("outages") and rng.random() < 0.1
            if world.schedule.has("kills"):
                await self._kill_or_bring_back(rng.choice(world.nodes))

    async def end(self) -> None:
        for network in self._networks():
            network.faults, network.is_away = CALM, False
        if self.world.store is not None:
            self.world.store.is_away = False
        for node in self.world.nodes:
            if node.process.is_dead:
                node.start()

    async def _kill_or_bring_back(self, node: Node) -> None:
        now = asyncio.get_running_loop().time()
        if node.process.is_dead:
            if self.back_at[node.name] <= now:
                node.start()
        elif self.rng.random() < 0.2:
            await node.kill()
            self.kills += 1
            self.back_at[node.name] = now + self.rng.choice([0, 0, 5, 30, 90])

    def _networks(self) -> list[Network]:
        return [self.world.to_engine, *(node.to_machines for node in self.world.nodes)]


@dataclass(slots=True)
class _Owners:
    """They start, use and stop sandboxes, some at once, and write down what they are answered."""

    world: PlatformWorld
    history: LifeHistory = field(default_factory=lambda: LifeHistory("platform"))
    begun: int = 0
    done: int = 0
    known: list[tuple[Principal, str]] = field(default_factory=list)

    async def run(self, operations: int) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(_AT_ONCE):
                group.create_task(self._work(number, operations))

    async def _work(self, number: int, operations: int) -> None:
        rng = random.Random(f"{self.world.schedule.seed}:owner {number}")
        while self.begun < operations:
            self.begun += 1
            [choice] = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
            await self._operation(choice, rng, f"{number}-{self.begun}")
            self.done += 1
            await asyncio.sleep(rng.uniform(0.02, 0.6))

    async def _operation(self, choice: str, rng: random.Random, name: str) -> None:
        if choice == "charge":
            await self._charge(rng, name)
        elif choice == "bill":
            await self._insist("bill", "", rng, lambda services: services.bills.run())
        elif choice == "create" or len(self.known) < _AT_ONCE:
            await self._create(rng, name)
        else:
            recent = self.known[-30:] if rng.random() < 0.8 else self.known
            by, sandbox_id = rng.choice(recent)
            work = _about(choice, by, sandbox_id, rng)
            calls = 2 if choice in ("start", "stop") and rng.random() < 0.3 else 1
            await asyncio.gather(
                *(self._insist(choice, sandbox_id, rng, work) for _ in range(calls))
            )

    async def _create(self, rng: random.Random, name: str) -> None:
        by = rng.choice(self.world.owners)
        new = NewSandbox(
            name=name,
            template_id=self.world.template_id,
            project_id=None,
            description=None,
            cpu_spec=rng.choice([1, 1, 2]),
            memory_spec=rng.choice([0.5, 1, 2]),
            max_running_seconds=rng.choice([20, 60, 600]),
            recycle_on_timeout=rng.random() < 0.1,
            idle_stop_minutes=rng.choice([None, None, None, 1]),
        )

        async def create(services: Services) -> Sandbox:
            return (await services.sandboxes.create(new, by=by)).sandbox

        node = rng.choice(self.world.nodes)
        try:
            made = await node.call(create)
        except (SandyardError, NoAnswerError):
            return  # whether it was made or not, nobody knows its id
        self.known.append((by, made.sandbox_id))

    async def _charge(self, rng: random.Random, name: str) -> None:
        """Sent twice at least, with one key."""
        by = rng.choice(self.world.owners)
        new = Charge(ServiceType.CREDIT, Decimal("0.25"), f"credit {name}")

        async def charge(services: Services) -> Any:
            return await services.charges.charge(by.account_id, new, key=name, by=_ADMIN)

        made = [await self._insist("charge", name, rng, charge) for _ in range(2)]
        bills = {each[0].billing_id for each in made if isinstance(each, tuple)}
        assert len(bills) <= 1, f"charged twice for {name}: {bills}"

    async def _insist(self, kind: str, subject: str, rng: random.Random, work: Call) -> Any:
        """Until it is answered, or some tries have failed: at the node that has it, if that is
        known to another."""
        for _ in range(_TRIES):
            begin = self._now()
            node = rng.choice(self.world.nodes)
            try:
                result = await node.call(work)
            except SandboxElsewhereError:
                continue
            except (NoAnswerError, UnavailableError):
                self._add(LifeCall(kind, subject, begin))
                await asyncio.sleep(rng.uniform(0.05, 0.5))
                continue
            except SandyardError as error:
                self._add(LifeCall(kind, subject, begin, self._now(), error.code))
                return None
            self._add(_answered(LifeCall(kind, subject, begin, self._now(), "ok"), result))
            return result
        return None

    def _add(self, call: LifeCall) -> None:
        if call.subject and call.kind != "charge":
            self.history.calls.append(call)

    def _now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()


def _answered(call: LifeCall, result: Any) -> LifeCall:
    if not isinstance(result, Sandbox):
        return call
    return LifeCall(
        call.kind, call.subject, call.begin, call.end, "ok", str(result.status), result.attempt
    )


def _about(choice: str, by: Principal, sandbox_id: str, rng: random.Random) -> Call:
    seconds = rng.choice([30, 120])
    idle = rng.choice([None, 1, 30])
    calls: dict[str, Callable[[Services], Awaitable[Any]]] = {
        "start": lambda it: it.sandboxes.start(sandbox_id, by=by),
        "stop": lambda it: it.sandboxes.stop(sandbox_id, by=by),
        "get": lambda it: it.sandboxes.get(sandbox_id, account_id=by.account_id),
        "extend": lambda it: it.deadlines.extend(sandbox_id, seconds=seconds, by=by),
        "shorten": lambda it: it.deadlines.set(sandbox_id, it.node.clock.now() + 3, by=by),
        "change": lambda it: it.sandboxes.change(
            sandbox_id, Changes({"idle_stop_minutes": idle}), by=by
        ),
        "recycle": lambda it: it.sandboxes.recycle(sandbox_id, by=by),
        "end": lambda it: it.sandboxes.end_for_admin(sandbox_id, reason="a test", by=_ADMIN),
    }

    async def work(services: Services) -> Any:
        return await calls[choice](services)

    return work
