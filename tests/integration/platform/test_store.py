"""Two nodes with one store of files: stops that wait for it, and starts from it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.integration.platform.test_nodes import file_of, run_job, write_file
from tests.support.clocks import RunningClock
from tests.support.platform.in_process import (
    Caller,
    MigratedEngines,
    PlatformApi,
    code_of,
    platform_api,
)
from tests.support.platform.sandboxes import act, add_sandbox, look
from tests.support.runtime.images import with_shell
from tests.support.runtime.root_file_systems import docker_archive, image_config

COUNT = """
cd /workspace; new=$RANDOM-$RANDOM-$RANDOM
[ -e kept ] || echo $new > kept
while true; do echo $new > next; mv next process; sleep 0.1; done
"""
DAY = timedelta(days=1)


@pytest.fixture
def clock() -> RunningClock:
    return RunningClock()


@pytest.fixture
async def nodes(
    migrated: MigratedEngines, clock: RunningClock, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Sequence[PlatformApi]]:
    tmp_path.chmod(0o755)
    url = await migrated.copy("postgresql", tmp_path)
    volume = getattr(request, "param", "folder")
    chosen = {"sandbox_volume": volume, "snapshot_store": f"file:{tmp_path}/share"}
    async with (
        platform_api(url, tmp_path / "one", clock, sandboxes=chosen) as one,
        platform_api(url, tmp_path / "other", clock, sandboxes=chosen) as other,
    ):
        yield one, other
        for api in (one, other):
            for held in await api.part.wired.runtime.list_runs("sandbox"):
                await api.part.wired.runtime.stop(held.run_id)


async def until_stopped(api: PlatformApi, caller: Caller, sandbox: dict[str, Any]) -> None:
    """By the job: uploads are not tried for a moment after one has failed."""
    async with asyncio.timeout(60):
        while (await look(api, caller, sandbox))["status"] == "running":
            await run_job(api, "ends")
            await asyncio.sleep(0.1)


async def test_a_stop_waits_for_the_store_and_any_node_starts_from_it(
    nodes: Sequence[PlatformApi], tmp_path: Path
) -> None:
    here, there = nodes
    caller = await here.account()
    sandbox, other = [await add_sandbox(here, caller, name=name) for name in ("one", "other")]
    for each in (sandbox, other):
        await act(here, caller, each, "start")
    write_file(here, sandbox, "mine")
    (tmp_path / "share").write_text("in its place")
    refused = await here.call("POST", f"/sandboxes/{sandbox['sandbox_id']}/stop", caller)
    assert code_of(refused) == (503, "STORE_UNAVAILABLE")
    assert (await look(here, caller, sandbox))["status"] == "running"
    gone = await here.call("DELETE", f"/sandboxes/{other['sandbox_id']}", caller)
    assert gone.json()["status"] == "recycled", "what is not kept needs no store"
    assert (await run_job(here, "ends")).closed == 0
    (tmp_path / "share").unlink()
    await until_stopped(here, caller, sandbox)
    started = await act(there, caller, sandbox, "start")
    assert await file_of(there, caller, started) == "mine"
    write_file(there, sandbox, "changed")
    await act(there, caller, sandbox, "stop")
    assert await file_of(here, caller, await act(here, caller, sandbox, "start")) == "changed"


@pytest.mark.parametrize("nodes", ["auto"], indirect=True)
@pytest.mark.parametrize(
    "isolation", ["gvisor", pytest.param("bubblewrap", marks=pytest.mark.torture)]
)
async def test_an_image_and_what_was_made_of_it_start_on_another_node(
    nodes: Sequence[PlatformApi], isolation: str
) -> None:
    """With its processes under gVisor, with its files under bubblewrap."""
    here, there = nodes
    caller = await here.account()
    archive = docker_archive(with_shell(), config=image_config(Cmd=["sh", "-c", COUNT]))
    imported = await here.call("POST", "/images/import?name=counter", caller, content=archive)
    image_id = imported.json()["image_id"]
    async with asyncio.timeout(60):
        while (await here.get(f"/images/{image_id}", caller))["status"] == "pulling":
            await asyncio.sleep(0.02)
    body = {"name": "counter", "category": "web", "language": "any", "image": image_id}
    template = await here.post("/templates", caller, body | {"isolation": isolation})
    wanted = {"template_id": template["template_id"], "memory_spec": 1}
    sandbox = await add_sandbox(here, caller, **wanted)
    await act(here, caller, sandbox, "start")
    before = await counted(here, caller, sandbox)
    has_memory = isolation == "gvisor"
    stop = f"/sandboxes/{sandbox['sandbox_id']}/stop"
    stopped = await here.post(stop, caller, {"memory": has_memory})
    assert stopped["snapshot_has_memory"] is has_memory
    await act(there, caller, sandbox, "start")
    after = await counted(there, caller, sandbox)
    assert after["kept"] == before["kept"]
    assert (after["process"] == before["process"]) is has_memory


async def counted(api: PlatformApi, caller: Caller, sandbox: dict[str, Any]) -> dict[str, str]:
    """What its program has written: once for all its starts, and once for this process."""
    line = "cat /workspace/kept /workspace/process"
    found = ""
    async with asyncio.timeout(30):
        while len(found.split()) < 2:
            path = f"/sandboxes/{sandbox['sandbox_id']}/commands"
            found = (await api.post(path, caller, {"command": line}))["result"]["stdout"]
    return dict(zip(("kept", "process"), found.split(), strict=True))


async def test_the_job_empties_store_and_disk_of_what_is_not_needed(
    nodes: Sequence[PlatformApi], clock: RunningClock, tmp_path: Path
) -> None:
    here, _ = nodes
    caller = await here.account()
    kept, dropped = [await add_sandbox(here, caller, name=name) for name in ("one", "other")]
    for each in (kept, dropped):
        await act(here, caller, each, "start")
        write_file(here, each, each["name"])
        await act(here, caller, each, "stop")
    cached = list((tmp_path / "one" / "runtime" / "snapshots").iterdir())
    assert len(cached) == 2
    await here.call("DELETE", f"/sandboxes/{dropped['sandbox_id']}", caller)
    assert (await run_job(here, "snapshots")).objects_deleted == 0
    clock.advance(DAY.total_seconds() + 60)
    assert (await run_job(here, "snapshots")).objects_deleted == 1
    assert [path for path in cached if path.exists()] == [], "the store has it"
    clock.advance(-DAY.total_seconds())  # its login is still valid
    assert await file_of(here, caller, await act(here, caller, kept, "start")) == kept["name"]
