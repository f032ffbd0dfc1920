"""What an operator sees of a cluster in trouble: each alert about Pods is one of these figures."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.kit.observability.metrics import Labelled
from sandyard.platform.wiring.kubernetes import pod_gauges
from sandyard.runtime.kubernetes.machines import KubernetesMachines
from sandyard.runtime.kubernetes.manifest import name_of
from tests.support.kubernetes.cluster import Cluster, cluster
from tests.support.runtime.programs import LIMITS, STATIC, new_run_id


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path, nodes=1) as found:
        yield found


async def until_counted(machines: KubernetesMachines, **counts: int) -> dict[str, float]:
    """The ages by state, once there are so many Pods in each."""
    async with asyncio.timeout(20):
        while True:
            gauges = await pod_gauges(machines)
            shown = [gauges[name][1] for name in ("sandyard_pods", "sandyard_pods_oldest_seconds")]
            assert all(isinstance(each, Labelled) for each in shown)
            values, ages = (
                {state: value for (state,), value in each.values.items()}
                for each in shown
                if isinstance(each, Labelled)
            )
            if {state: count for state, count in values.items() if count} == counts:
                return ages
            await asyncio.sleep(0.02)


async def test_each_trouble_of_a_cluster_is_counted_and_how_long_it_lasts(found: Cluster) -> None:
    runtime, (machines, _) = found.runtime(), found.machines()
    run_id = new_run_id()
    await runtime.start(run_id, STATIC, LIMITS)
    await until_counted(machines, running=1)

    found.nodes.has_room = False
    waiting = asyncio.create_task(runtime.start(new_run_id(), STATIC, LIMITS))
    assert (await until_counted(machines, running=1, pending=1))["pending"] >= 0
    found.nodes.has_room = True
    other = (await waiting).run_id
    await until_counted(machines, running=2)

    async with asyncio.timeout(60):
        while {run_id, other} - {*await machines.versions("sandbox")}:
            await asyncio.sleep(0.02)
            for each in (run_id, other):
                await machines.refresh(each)
    node = found.nodes.pod(name_of(run_id)).node.name
    found.nodes.cut_off(node)
    assert (await until_counted(machines, unreachable=2))["running"] == 0
    found.nodes.connect(node)

    (found.folder / "store").touch()  # a file: the store is away
    await runtime.machines.stop(other)
    with pytest.raises(Exception, match="store"):
        await runtime.machines.refresh(other)
    await until_counted(machines, running=1, ending=1)

    found.api.go_away()
    async with asyncio.timeout(20):
        while await pod_gauges(machines):
            await asyncio.sleep(0.02)
