"""Two servers and three nodes: servers die, nodes are cut off and come back, the API server and the
store go away. No run is made twice, no file is lost."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.kit.errors import UnavailableError
from sandyard.runtime.errors import AttemptEndedError, NotRunningError, StartFailedError
from sandyard.runtime.kubernetes.agent import AgentUnavailableError
from sandyard.runtime.kubernetes.api import ApiUnavailableError, InvalidObjectError
from sandyard.runtime.kubernetes.manifest import CREATION, name_of, pod
from sandyard.runtime.model import FileChanges, MachineSpec, Program, RunId, Running
from sandyard.runtime.ports import Runtime
from tests.support.kubernetes.cluster import Cluster, cluster
from tests.support.runtime.programs import LIMITS, STATIC, new_run_id
from tests.support.runtime.runtimes import page_of_run, until_ended
from tests.support.runtime.sessions import shell

KEPT = FileChanges(written={"kept": b"the content"})


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path, nodes=3) as found:
        yield found


async def content_of(runtime: Runtime, run_id: RunId, snapshot_id: str) -> bytes:
    """Of the file, after a start from the snapshot."""
    program = Program(None, snapshot_id=snapshot_id)
    running = await runtime.start(run_id, program, LIMITS)
    session = await runtime.session(running.run_id)
    return await shell(session, "cat kept")


def node_of(found: Cluster, running: Running) -> str:
    return found.nodes.pod(name_of(running.run_id)).node.name


async def test_any_server_serves_any_call(found: Cluster) -> None:
    one, other = found.runtime(), found.runtime()
    running = await one.start(new_run_id(), STATIC, LIMITS)
    await other.write_files(running.run_id, KEPT)
    assert await shell(await one.session(running.run_id), "cat kept") == b"the content"
    assert (await page_of_run(other, running)).content == b"<h1>hello</h1>"
    moved = await other.extend(running.run_id, deadline_at=time.time() + 300)
    async with asyncio.timeout(5):  # its watch tells it
        while await one.find(running.run_id) != replace(running, deadline_at=moved.deadline_at):
            await asyncio.sleep(0.01)
    ended = await other.stop(running.run_id)
    assert ended.snapshot is not None
    assert await one.refresh(running.run_id) == ended
    assert await content_of(one, new_run_id(), ended.snapshot.id) == b"the content"
    await other.forget(running.run_id)
    assert await one.run_ids("sandbox") == await other.run_ids("sandbox")


async def test_a_create_whose_response_is_lost_is_found_again(found: Cluster) -> None:
    lost = iter([True])
    found.api.refuses_next = lambda method, kind: (
        (method, kind) == ("POST", "pods") and next(lost, False)
    )
    running = await found.runtime().start(new_run_id(), STATIC, LIMITS)
    assert (await page_of_run(found.runtime(), running)).is_success
    assert found.nodes.count_running() == 1


async def test_a_node_that_is_cut_off_keeps_its_sandbox_and_has_it_when_it_is_back(
    found: Cluster,
) -> None:
    one, other = found.runtime(), found.runtime()
    running = await one.start(new_run_id(), STATIC, LIMITS)
    await one.write_files(running.run_id, KEPT)
    node = node_of(found, running)
    found.nodes.cut_off(node)
    with pytest.raises(AgentUnavailableError):
        await shell(await other.session(running.run_id), "true")
    assert isinstance(await other.refresh(running.run_id), Running)
    stop = asyncio.create_task(one.stop(running.run_id))
    await asyncio.sleep(0.5)
    assert not stop.done() or isinstance(stop.exception(), UnavailableError)
    found.nodes.connect(node)
    ended = await until_ended(other, running.run_id)
    await asyncio.gather(stop, return_exceptions=True)
    assert (ended.reason, ended.snapshot is None) == ("stopped", False)
    assert ended.snapshot is not None
    assert await content_of(one, new_run_id(), ended.snapshot.id) == b"the content"


async def test_on_a_node_that_stays_away_it_ends_at_its_deadline(found: Cluster) -> None:
    runtime = found.runtime(lost_sec=0.5)
    limits = replace(LIMITS, max_running_sec=4)
    running = await runtime.start(new_run_id(), STATIC, limits)
    found.nodes.cut_off(node_of(found, running))
    assert isinstance(await runtime.refresh(running.run_id), Running)
    async with asyncio.timeout(30):
        while True:
            try:
                ended = await until_ended(runtime, running.run_id)
                break
            except UnavailableError:
                await asyncio.sleep(0.1)
    assert (ended.reason, ended.snapshot) == ("timeout", None)
    assert ended.snapshot_error
    assert ended.ended_at - running.deadline_at < 2
    assert name_of(running.run_id) in found.api.objects["pods"], "it was deleted by force"


async def test_a_node_that_is_removed_ends_what_it_had(found: Cluster) -> None:
    runtime = found.runtime()
    running = await runtime.start(new_run_id(), STATIC, LIMITS)
    other = await runtime.start(new_run_id(), STATIC, LIMITS)
    await found.nodes.remove(node_of(found, running))
    ended = await until_ended(runtime, running.run_id)
    assert (ended.reason, ended.snapshot) == ("killed", None)
    assert running.started_at <= ended.ended_at <= time.time()
    assert await runtime.refresh(other.run_id) == other


async def test_while_the_api_server_is_away_nothing_ends(found: Cluster) -> None:
    runtime = found.runtime()
    running = await runtime.start(new_run_id(), STATIC, LIMITS)
    session = await runtime.session(running.run_id)
    found.api.go_away()
    with pytest.raises(ApiUnavailableError):
        await until_ended(runtime, running.run_id)
    assert await shell(session, "cat index.html") == b"<h1>hello</h1>"
    found.api.is_away = False
    async with asyncio.timeout(20):
        while True:
            try:
                assert await runtime.refresh(running.run_id) == running
                break
            except ApiUnavailableError:
                await asyncio.sleep(0.1)


async def test_a_watch_that_expired_lists_again(found: Cluster) -> None:
    one, other = found.runtime(), found.runtime()
    running = await one.start(new_run_id(), STATIC, LIMITS)
    assert await other.refresh(running.run_id) == running
    found.api.compact()
    ended = await one.stop(running.run_id)
    assert await until_ended(other, running.run_id) == ended


async def test_a_drained_node_loses_no_file(found: Cluster) -> None:
    runtime = found.runtime()
    running = await runtime.start(new_run_id(), STATIC, LIMITS)
    await runtime.write_files(running.run_id, KEPT)
    pod = found.api.objects["pods"][name_of(running.run_id)]["metadata"]
    await found.client().delete("pods", pod["name"], uid=pod["uid"])
    ended = await until_ended(runtime, running.run_id)
    assert (ended.reason, ended.snapshot is None) == ("terminated", False)
    assert ended.snapshot is not None
    assert await content_of(runtime, new_run_id(), ended.snapshot.id) == b"the content"


@pytest.mark.parametrize(
    ("message", "reason"),
    [("Usage of EmptyDir volume exceeds the limit", "out_of_storage"), ("low", "terminated")],
)
async def test_an_eviction_is_told(found: Cluster, message: str, reason: str) -> None:
    runtime = found.runtime()
    running = await runtime.start(new_run_id(), STATIC, LIMITS)
    await found.nodes.evict(name_of(running.run_id), message)
    ended = await until_ended(runtime, running.run_id)
    assert (ended.reason, message in ended.message) == (reason, True)


async def test_a_run_that_took_too_much_memory_is_told(found: Cluster) -> None:
    runtime = found.runtime()
    running = await runtime.start(new_run_id(), STATIC, LIMITS)
    await found.nodes.kill(name_of(running.run_id), reason="OOMKilled")
    assert (await until_ended(runtime, running.run_id)).reason == "out_of_memory"


async def test_a_delete_is_of_one_pod_and_of_no_other_with_its_name(found: Cluster) -> None:
    running = await found.runtime().start(new_run_id(), STATIC, LIMITS)
    name = name_of(running.run_id)
    await found.client().delete("pods", name, uid="that-of-an-earlier-one")
    assert "deletionTimestamp" not in found.api.objects["pods"][name]["metadata"]


@pytest.mark.parametrize("is_restricted", [True, False])
async def test_neither_another_pod_with_the_name_nor_one_with_rights_is_used(
    found: Cluster, is_restricted: bool
) -> None:
    """The second is refused by the cluster: the namespace has the restricted profile."""
    run_id, found.nodes.has_room = new_run_id(), False
    theirs = pod(
        run_id,
        LIMITS,
        found.options,
        image=found.options.image,
        isolation=None,
        egress=None,
        deadline_at=time.time() + 60,
        creation="theirs",
    )
    if not is_restricted:
        theirs["spec"]["containers"][0]["securityContext"] = {"privileged": True}
        with pytest.raises(InvalidObjectError, match="violates PodSecurity"):
            await found.client().create("pods", theirs)
        return
    await found.client().create("pods", theirs)
    with pytest.raises(AttemptEndedError):
        await found.machines()[0].create(run_id, MachineSpec(LIMITS, 60))
    [left] = found.api.objects["pods"].values()
    assert left["metadata"]["annotations"][CREATION] == "theirs"


async def test_an_image_without_any_file_runs_the_agent(found: Cluster) -> None:
    program = Program(None, root="distroless")
    running = await found.runtime().start(new_run_id(), program, LIMITS)
    session = await found.runtime().session(running.run_id)
    await session.files.apply(KEPT)
    assert [each.path for each in await session.files.list(".")] == ["/workspace/kept"]


async def test_what_can_not_start_says_why(found: Cluster) -> None:
    with pytest.raises(StartFailedError, match="can't be pulled"):
        await found.runtime().start(new_run_id(), Program(None, root="lost"), LIMITS)
    assert found.api.objects["pods"] == {}


async def test_of_a_run_that_has_ended_there_is_no_session(found: Cluster) -> None:
    runtime = found.runtime()
    running = await runtime.start(new_run_id(), STATIC, LIMITS)
    session = await runtime.session(running.run_id)
    await found.runtime().stop(running.run_id)
    with pytest.raises(NotRunningError):
        await shell(session, "true")
