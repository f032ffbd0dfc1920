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

DAY = timedelta(days=1)


@pytest.fixture
def clock() -> RunningClock:
    return RunningClock()


@pytest.fixture
async def nodes(
    migrated: MigratedEngines, clock: RunningClock, tmp_path: Path
) -> AsyncIterator[Sequence[PlatformApi]]:
    tmp_path.chmod(0o755)
    url = await migrated.copy("postgresql", tmp_path)
    chosen = {"sandbox_volume": "folder", "snapshot_store": f"file:{tmp_path}/share"}
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
