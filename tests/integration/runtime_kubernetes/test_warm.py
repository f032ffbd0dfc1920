"""Warm machines in a cluster: any server keeps them, and any hands them out."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.runtime.kubernetes.manifest import KIND
from sandyard.runtime.model import Running
from sandyard.runtime.programs.runner import ProgramRunner
from sandyard.runtime.programs.start import ProgramTimeouts
from sandyard.runtime.programs.warm import WarmPool, WarmRuns
from sandyard.runtime.records.recorded_run import begun_record, running_record
from tests.support.clocks import ManualClock
from tests.support.kubernetes.cluster import Cluster, cluster
from tests.support.runtime.programs import LIMITS, STATIC, new_run_id
from tests.support.runtime.runtimes import page_of_run, until_ended
from tests.support.runtime.sessions import shell

POOL = WarmPool("tpl", STATIC, LIMITS, 1)


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as found:
        yield found


def server(found: Cluster, clock: ManualClock | None = None) -> tuple[ProgramRunner, WarmRuns]:
    machines, archives = found.machines()
    own = SystemClock()
    runtime = ProgramRunner(machines, machines.records, archives, ProgramTimeouts(), own)
    return runtime, WarmRuns(runtime, machines.warm, clock or own)


async def until_running(found: Cluster, count: int) -> None:
    """Waits for the nodes, which end the processes of a Pod after its object is gone."""
    async with asyncio.timeout(20):
        while found.nodes.count_running() != count:
            await asyncio.sleep(0.01)


async def test_of_several_servers_one_hands_it_out_and_all_serve_it(found: Cluster) -> None:
    (one, keeping), (other, taking) = server(found), server(found)
    assert await keeping.keep([POOL]) == 1
    [warm] = await other.run_ids("warm")
    taken = await asyncio.gather(
        *(each.take(POOL, to=new_run_id(), limits=LIMITS) for each in (keeping, taking) * 2)
    )
    [running] = [each for each in taken if each is not None]
    assert found.nodes.count_running() == 1
    async with asyncio.timeout(10):  # its watch tells it
        while await one.refresh(running.run_id) != running:
            await asyncio.sleep(0.05)
    assert (await page_of_run(one, running)).content == b"<h1>hello</h1>"
    assert await one.run_ids("sandbox") == await other.run_ids("sandbox") == [running.run_id]
    [pod] = found.api.objects["pods"].values()
    assert pod["metadata"]["labels"][KIND] == "sandbox"
    assert await other.refresh(warm) is None
    await shell(await one.session(running.run_id), "echo mine >mine")
    ended = await other.stop(running.run_id)
    assert ended.snapshot is not None
    again = await one.start(new_run_id(), replace(STATIC, snapshot_id=ended.snapshot.id), LIMITS)
    assert await shell(await one.session(again.run_id), "cat mine") == b"mine\n"
    await other.forget(running.run_id)
    assert await other.run_ids("sandbox") == [again.run_id]


async def test_it_ends_at_the_deadline_of_whom_it_was_given_to_and_is_replaced(
    found: Cluster,
) -> None:
    runtime, warm = server(found)
    await warm.keep([POOL])
    limits = replace(LIMITS, max_running_sec=1)
    running = await warm.take(POOL, to=new_run_id(), limits=limits)
    assert running is not None
    assert await warm.keep([POOL]) == 1
    ended = await until_ended(runtime, running.run_id)
    assert (ended.run_id, ended.reason) == (running.run_id, "timeout")
    assert ended.snapshot is not None


async def test_a_server_that_stops_leaves_them_to_the_others_who_end_what_is_not_wanted(
    found: Cluster,
) -> None:
    (_, stopping), (other, taking) = server(found), server(found)
    await stopping.keep([POOL])
    await stopping.close()
    assert found.nodes.count_running() == 1
    await taking.keep([])
    assert await other.run_ids("warm") == []
    await until_running(found, 0)


@pytest.mark.parametrize("is_late", [False, True])
async def test_one_whose_server_was_killed_while_it_handed_it_out_is_ended_or_the_runs_alone(
    found: Cluster, is_late: bool
) -> None:
    """It is the run's as soon as that has its Secret."""
    machines, to = found.machines()[0], new_run_id()
    clock = ManualClock(SystemClock().now())
    runtime, warm = server(found, clock)
    await warm.keep([POOL])
    [lost] = await runtime.run_ids("warm")
    running = await runtime.find(lost)
    assert isinstance(running, Running)
    assert await machines.warm.take(lost, to=to)
    if is_late:
        records = {
            "begun": begun_record(LIMITS, running.started_at),
            "running": running_record(replace(running, run_id=to)),
        }
        await machines.records.of(to).take_over(machines.records.of(lost), records)
    clock.advance(120)
    async with asyncio.timeout(20):
        while await runtime.run_ids("warm"):
            await warm.keep([])
    assert isinstance(await runtime.refresh(to), Running) == is_late
    await until_running(found, int(is_late))
