"""One run: replicas, callers and troubles from a seed, and what became of them."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from sandyard.broker.stores.sql import MIGRATIONS
from sandyard.kit import ids
from sandyard.settings import Settings, load_settings
from tests.faults.callers import Callers
from tests.faults.cluster import LEASE_MAX_SEC, MOST_EXTENSIONS, SETTINGS, TICKET_TTL_SEC
from tests.faults.history import History
from tests.faults.pool_contents import events_of, stock_of
from tests.histories.evidence import PoolEvidence, save
from tests.histories.judge import Limits
from tests.simulation.broker import (
    SKEW_SEC,
    Engine,
    MemoryEngine,
    PoolOnSql,
    SimulatedReplica,
    World,
    directly,
)
from tests.simulation.engine import SharedSqlite
from tests.simulation.loop import EPOCH, VirtualTimeLoop
from tests.simulation.network import CALM, STORM
from tests.simulation.schedule import Schedule
from tests.simulation.virtual import run_in_virtual_time
from tests.support.broker.pools import check_history

_LIMITS = Limits(SKEW_SEC, most_extensions=MOST_EXTENSIONS)
_REPLICAS = 3
_AT_FIRST = 40
"""How many sandboxes the cloud has; it grows more slowly than they are asked for."""
_AT_ONCE = 30


@dataclass(frozen=True, slots=True)
class Outcome:
    schedule: Schedule
    operations: int
    evidence: PoolEvidence
    faults: dict[str, int]
    """How often each has happened."""
    kills: int
    problems: list[str]
    """Everything that cannot be, in sentences."""

    @property
    def history(self) -> History:
        return self.evidence.history

    def answered(self, kind: str, status: int) -> int:
        return sum(each.status == status for each in self.history.of(kind))

    def save(self, folder: Path) -> None:
        save(self.evidence, folder)
        (folder / "problems.txt").write_text("\n".join([str(self.schedule), *self.problems]))


def simulate(
    schedule: Schedule,
    engine: Literal["memory", "sqlite"] | Engine = "memory",
    loop: type[VirtualTimeLoop] = VirtualTimeLoop,
) -> Outcome:
    """On a store in memory, on SQLite in memory, or on an empty pool of another engine."""
    return run_in_virtual_time(schedule.seed, lambda: _simulate(schedule, engine), loop)


@cache
def settings() -> Settings:
    with patch.dict("os.environ", SETTINGS):
        return load_settings()


async def _simulate(schedule: Schedule, engine: Literal["memory", "sqlite"] | Engine) -> Outcome:
    loop, seed = asyncio.get_running_loop(), schedule.seed
    if engine == "memory":
        lag_sec = random.Random(f"{seed}:lag").choice([0, 0, 1, 3])
        engine = MemoryEngine(lambda: EPOCH + loop.time(), lag_sec)
    elif engine == "sqlite":
        engine = PoolOnSql(SharedSqlite.migrated(MIGRATIONS))
    world = World(schedule, settings(), engine)
    world.cloud.grow(_AT_FIRST)
    replicas = [SimulatedReplica(world, number) for number in range(_REPLICAS)]
    for each in replicas:
        await each.start()
    callers = Callers(
        replicas,
        [ids.sandbox_id(each) for each in world.cloud.sandboxes],
        seed,
        open_calls=directly,
        now=lambda: EPOCH + loop.time(),
    )
    world.to_engine.faults = world.to_cloud.faults = schedule.allowed(STORM)
    troubles = _Troubles(world, replicas, callers, random.Random(f"{seed}:troubles"))
    going_wrong = asyncio.create_task(troubles.go_on())
    await callers.run(schedule.operations, at_once=_AT_ONCE)
    going_wrong.cancel()
    for each in replicas:
        await each.kill()
    evidence = await _evidence(world, callers.history)
    await engine.close()
    faults = world.to_engine.happened + world.to_cloud.happened
    return Outcome(
        schedule, callers.done, evidence, dict(faults), troubles.kills, evidence.problems()
    )


@dataclass(slots=True)
class _Troubles:
    world: World
    replicas: Sequence[SimulatedReplica]
    callers: Callers
    rng: random.Random
    kills: int = 0

    async def go_on(self) -> None:
        """Every second or so other things go wrong, a replica dies or comes back, and the cloud has
        more sandboxes."""
        rng, world = self.rng, self.world
        while True:
            await asyncio.sleep(rng.uniform(0.2, 2))
            world.cloud.grow(rng.randint(0, 8))
            self.callers.sandbox_ids = [ids.sandbox_id(each) for each in world.cloud.sandboxes]
            world.to_engine.is_away = rng.random() < 0.03 and world.schedule.has("outages")
            faults = world.schedule.allowed(rng.choice([CALM, STORM]))
            world.to_engine.faults = world.to_cloud.faults = faults
            await self._kill_or_bring_back(rng.choice(self.replicas))

    async def _kill_or_bring_back(self, replica: SimulatedReplica) -> None:
        if replica.process.is_dead:
            await replica.start()
        elif self.rng.random() < 0.3 and self.world.schedule.has("kills"):
            await replica.kill()
            self.kills += 1


async def _evidence(world: World, history: History) -> PoolEvidence:
    """The same as of runs on the real engines."""
    store = world.store()
    await check_history(store)
    return PoolEvidence(
        history,
        _LIMITS,
        await stock_of(store),
        await events_of(store),
        listed=list(world.cloud.sandboxes),
        read_at=EPOCH + asyncio.get_running_loop().time(),
        longest_sec=LEASE_MAX_SEC,
        ticket_ttl_sec=TICKET_TTL_SEC,
    )
