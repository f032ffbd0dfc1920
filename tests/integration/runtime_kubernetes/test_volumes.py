"""Volumes in a cluster: what a Pod writes there outlives it, one writes or many read."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.runtime.errors import (
    StartFailedError,
    VolumeFilesMissingError,
    VolumesUnsupportedError,
    VolumeTooSmallError,
)
from sandyard.runtime.kubernetes.claims import name_of
from sandyard.runtime.kubernetes.machines import KubernetesMachines
from sandyard.runtime.kubernetes.manifest import name_of as pod_name_of
from sandyard.runtime.kubernetes.model import unscheduled_reason
from sandyard.runtime.model import Ended, MachineSpec, Mount, RunId
from tests.support.kubernetes.cluster import Cluster, cluster
from tests.support.runtime.programs import LIMITS, new_run_id
from tests.support.runtime.sessions import shell

MEGABYTE = 1 << 20
CLAIMS = "persistentvolumeclaims"


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path, nodes=3) as found:
        yield found


async def started(machines: KubernetesMachines, *mounts: Mount) -> RunId:
    run_id = new_run_id()
    await machines.create(run_id, MachineSpec(LIMITS, 600, mounts=mounts))
    return run_id


async def run(machines: KubernetesMachines, run_id: RunId, script: str) -> bytes:
    return await shell(await machines.session(run_id), script)


async def stop(machines: KubernetesMachines, run_id: RunId) -> None:
    await machines.stop(run_id)
    async with asyncio.timeout(20):
        while not isinstance(await machines.refresh(run_id), Ended):
            await asyncio.sleep(0.05)


async def test_what_one_writes_the_next_reads_and_readers_share_a_node(found: Cluster) -> None:
    machines, _ = found.machines()
    await machines.volumes.create("vol-a", 64 * MEGABYTE)
    await machines.volumes.create("vol-a", 64 * MEGABYTE)  # its response may have been lost
    writer = await started(machines, Mount("vol-a", "/workspace/m"))
    await run(machines, writer, "echo weights >m/file")
    reading = Mount("vol-a", "/data", is_read_only=True)
    waiting = asyncio.create_task(started(machines, reading))
    async with asyncio.timeout(20):
        while not any(map(unscheduled_reason, found.api.objects["pods"].values())):
            await asyncio.sleep(0.05)
    assert found.nodes.count_running() == 1, "a reader started beside a writer"
    await stop(machines, writer)
    readers = [await waiting, await started(machines, reading)]
    for each in readers:
        script = "cat /data/file; touch /data/x 2>&1 | grep -o Read-only"
        assert await run(machines, each, script) == b"weights\nRead-only\n"
    pods = [found.nodes.pod(pod_name_of(each)) for each in readers]
    assert pods[0].node is pods[1].node


async def test_a_copy_has_the_files_and_is_made_by_a_pod_that_is_gone_then(found: Cluster) -> None:
    machines, _ = found.machines()
    await machines.volumes.create("vol-a", 64 * MEGABYTE)
    writer = await started(machines, Mount("vol-a", "/data"))
    await run(machines, writer, "mkdir /data/x; echo kept >/data/x/file; chmod 700 /data/x")
    await stop(machines, writer)
    reader = await started(machines, Mount("vol-a", "/data", is_read_only=True))
    await machines.volumes.create("vol-b", 64 * MEGABYTE, copy_of="vol-a")
    async with asyncio.timeout(20):
        while found.api.objects["pods"].keys() != {pod_name_of(reader)}:
            await asyncio.sleep(0.05)
    other = await started(machines, Mount("vol-b", "/data"))
    assert await run(machines, other, "cat /data/x/file; stat -c %a /data/x") == b"kept\n700\n"
    assert set(await machines.volumes.written_at()) == {"vol-a", "vol-b"}


@pytest.mark.parametrize("leaves_its_pod", [False, True])
async def test_a_copy_that_was_interrupted_is_made_anew(
    found: Cluster, leaves_its_pod: bool
) -> None:
    machines, _ = found.machines()
    await machines.volumes.create("vol-a", 64 * MEGABYTE)
    writer = await started(machines, Mount("vol-a", "/data"))
    await run(machines, writer, "echo kept >/data/file")
    await stop(machines, writer)
    found.nodes.has_room = False  # the Pod that copies waits
    copying = asyncio.create_task(machines.volumes.create("vol-b", 64 * MEGABYTE, copy_of="vol-a"))
    async with asyncio.timeout(20):
        while name_of("vol-b") not in found.api.objects["pods"]:
            await asyncio.sleep(0.01)
    if leaves_its_pod:
        await machines.volumes.api.close()
    copying.cancel()
    await asyncio.gather(copying, return_exceptions=True)
    assert (name_of("vol-b") in found.api.objects["pods"]) == leaves_its_pod
    found.nodes.has_room = True
    machines, _ = found.machines()
    for _ in range(2):
        await machines.volumes.create("vol-b", 64 * MEGABYTE, copy_of="vol-a")
    async with asyncio.timeout(20):
        while name_of("vol-b") in found.api.objects["pods"]:
            await asyncio.sleep(0.05)
    other = await started(machines, Mount("vol-b", "/data"))
    assert await run(machines, other, "cat /data/file") == b"kept\n"


async def test_it_grows_and_never_shrinks(found: Cluster) -> None:
    volumes = found.machines()[0].volumes
    await volumes.create("vol-a", 64 * MEGABYTE)
    await volumes.resize("vol-a", 128 * MEGABYTE)
    spec = found.api.objects[CLAIMS][name_of("vol-a")]["spec"]
    assert spec["resources"]["requests"]["storage"] == str(128 * MEGABYTE)
    with pytest.raises(VolumeTooSmallError, match="only grows"):
        await volumes.resize("vol-a", 64 * MEGABYTE)
    found.api.expands_volumes = False
    with pytest.raises(VolumesUnsupportedError, match="can not be resized"):
        await volumes.resize("vol-a", 256 * MEGABYTE)
    with pytest.raises(VolumeFilesMissingError):
        await volumes.resize("vol-b", 256 * MEGABYTE)


async def test_one_that_is_deleted_is_gone_with_the_last_pod_that_has_it(found: Cluster) -> None:
    machines, _ = found.machines()
    await machines.volumes.create("vol-a", 64 * MEGABYTE)
    writer = await started(machines, Mount("vol-a", "/data"))
    await machines.volumes.delete("vol-a")
    await run(machines, writer, "echo still >/data/file; cat /data/file")
    await stop(machines, writer)
    async with asyncio.timeout(20):
        while found.api.objects[CLAIMS]:
            await asyncio.sleep(0.05)
    await machines.volumes.delete("vol-a")
    with pytest.raises(VolumeFilesMissingError):
        await started(machines, Mount("vol-a", "/data"))


async def test_a_start_that_waits_for_a_volume_in_vain_says_why(found: Cluster) -> None:
    machines, impatient = found.machines()[0], found.machines(start_timeout_sec=2)[0]
    await machines.volumes.create("vol-a", 64 * MEGABYTE)
    await started(machines, Mount("vol-a", "/data"))
    with pytest.raises(StartFailedError, match="affinity"):
        await started(impatient, Mount("vol-a", "/data"))
