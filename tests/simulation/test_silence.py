"""Machines that have ended cost nothing more, although their node falls silent before that is
recorded."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from sandyard.kit.sql.entities import find_entities
from sandyard.platform.sandboxes.model import NewSandbox
from sandyard.platform.sandboxes.sql.store import SANDBOXES
from sandyard.platform.schema.migrations import MIGRATIONS
from tests.simulation.engine import SharedSqlite
from tests.simulation.network import Faults
from tests.simulation.platform import Node, PlatformWorld, Services
from tests.simulation.platform_truth import wrong_records
from tests.simulation.schedule import Schedule
from tests.simulation.virtual import run_in_virtual_time

RUN_SEC = 60
SANDBOXES_AT_ONCE = 5


@dataclass(slots=True)
class Found:
    ended: int
    problems: list[str] = field(default_factory=list)


async def fall_silent_while_it_looks(world: PlatformWorld, node: Node) -> None:
    """The job has seen some running, and they end before it writes that down."""
    node.to_machines.faults = Faults(late=1)
    end_all(node, after_sec=7)
    await asyncio.sleep(6.99)
    before = await last_seen(world)
    while await last_seen(world) == before:
        await asyncio.sleep(0.01)


async def fall_silent_while_files_wait(world: PlatformWorld, node: Node) -> None:
    """The store of files is away, so that the end can't be recorded yet."""
    assert world.store is not None
    world.store.is_away = True
    end_all(node, after_sec=1)
    await asyncio.sleep(12)


@pytest.mark.parametrize("trouble", [fall_silent_while_it_looks, fall_silent_while_files_wait])
def test_what_has_ended_is_billed_to_its_end(
    trouble: Callable[[PlatformWorld, Node], Awaitable[None]],
) -> None:
    found = run_in_virtual_time(7, lambda: _simulate(Schedule(7, 0, frozenset()), trouble))
    assert found.problems == []
    assert found.ended >= SANDBOXES_AT_ONCE - 2


async def _simulate(
    schedule: Schedule, trouble: Callable[[PlatformWorld, Node], Awaitable[None]]
) -> Found:
    world = PlatformWorld(schedule, SharedSqlite.migrated(MIGRATIONS))
    await world.fill(world.nodes[0].clock)
    silent, other, _ = world.nodes
    for node in (silent, other):
        node.start()
    for number in range(SANDBOXES_AT_ONCE):
        await silent.call(partial(started, world, f"box-{number}"))
    await trouble(world, silent)
    await silent.kill()
    await asyncio.sleep(3 * RUN_SEC)
    problems = [*silent.failures, *other.failures, *await wrong_records(world)]
    await other.kill()
    return Found(sum(each.ended_at is not None for each in silent.host.lives), problems)


async def started(world: PlatformWorld, name: str, services: Services) -> None:
    new = NewSandbox(
        name=name,
        template_id=world.template_id,
        project_id=None,
        description=None,
        cpu_spec=1,
        memory_spec=1,
        max_running_seconds=RUN_SEC,
        recycle_on_timeout=False,
        idle_stop_minutes=None,
    )
    by = world.owners[0]
    made = await services.sandboxes.create(new, by=by)
    await services.sandboxes.start(made.sandbox.sandbox_id, by=by)


def end_all(node: Node, *, after_sec: float) -> None:
    for machine in node.host.machines.values():
        machine.ends_at = node.clock.now() + after_sec


async def last_seen(world: PlatformWorld) -> list[object]:
    return [each.last_seen_at for each in await find_entities(world.database(), SANDBOXES)]
