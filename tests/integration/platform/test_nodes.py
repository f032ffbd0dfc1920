"""Two nodes on one PostgreSQL, with sandboxes that really run on them."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from sandyard.platform.schema.tables import templates
from tests.support.clocks import RunningClock
from tests.support.platform.in_process import (
    Caller,
    MigratedEngines,
    PlatformApi,
    code_of,
    platform_api,
)
from tests.support.platform.sandboxes import act, add_sandbox, look, page_of
from tests.support.servers.sandbox_programs import find_program

IN_FOLDERS = {"sandbox_volume": "folder"}
"""Workspaces that a test can write to from outside."""


@pytest.fixture
async def nodes(migrated: MigratedEngines, tmp_path: Path) -> AsyncIterator[Sequence[PlatformApi]]:
    tmp_path.chmod(0o755)
    url = await migrated.copy("postgresql", tmp_path)
    clock = RunningClock()
    async with (
        platform_api(url, tmp_path / "one", clock, sandboxes=IN_FOLDERS) as one,
        platform_api(url, tmp_path / "other", clock, sandboxes=IN_FOLDERS) as other,
    ):
        yield one, other
        for api in (one, other):
            for held in await api.part.wired.runtime.list_runs("sandbox"):
                await api.part.wired.runtime.stop(held.run_id)


async def run_job(api: PlatformApi, name: str) -> Any:
    node = api.part.wired.node
    [job] = [job for job in api.part.schedule if job.name == f"{name} {node}"]
    return await api.part.runner.run(job)


def write_file(api: PlatformApi, sandbox: dict[str, Any], text: str) -> None:
    """As the program that runs of it there would."""
    held = api.data_dir / "runtime/held/sandbox" / sandbox["sandbox_id"]
    last = max(held.glob("*/workspace"), key=lambda found: int(found.parent.name))
    (last / "public/mine.txt").write_text(text)


async def file_of(api: PlatformApi, caller: Caller, running: dict[str, Any]) -> str:
    return (await page_of(api, caller, running, "/mine.txt")).text


async def test_files_survive_a_start_on_a_node_that_does_not_have_them(
    nodes: Sequence[PlatformApi],
) -> None:
    one, other = nodes
    caller = await one.account()
    sandbox = await add_sandbox(one, caller)
    await act(one, caller, sandbox, "start")
    write_file(one, sandbox, "kept")
    stopped = await act(one, caller, sandbox, "stop")
    answer = await other.call("POST", f"/sandboxes/{sandbox['sandbox_id']}/start", caller)
    assert code_of(answer) == (503, "SANDBOX_ELSEWHERE")
    error = answer.json()["error"]
    assert error["details"] == {"node": one.part.wired.node}
    assert "an admin can call `POST /api/v1/admin/sandboxes/{id}/end`" in error["message"]
    assert "retry_after" not in error, "to wait is of no use"
    assert await look(other, caller, sandbox) == stopped
    one.clock.advance(2 * 3600)
    for api in nodes:
        assert (await run_job(api, "snapshots")).unreferenced_removed == 0
    again = await act(one, caller, sandbox, "start")
    assert await file_of(one, caller, again) == "kept"


async def test_a_missing_file_erases_no_row(nodes: Sequence[PlatformApi]) -> None:
    one, _ = nodes
    caller = await one.account()
    sandbox = await add_sandbox(one, caller)
    await act(one, caller, sandbox, "start")
    stopped = await act(one, caller, sandbox, "stop")
    [file] = (one.data_dir / "runtime/snapshots").iterdir()
    away = file.rename(one.data_dir / "away")
    answer = await one.call("POST", f"/sandboxes/{sandbox['sandbox_id']}/start", caller)
    assert code_of(answer) == (404, "SNAPSHOT_NOT_FOUND")
    assert await look(one, caller, sandbox) == stopped, "nothing was tried"
    assert stopped["snapshot_bytes"] > 0
    away.rename(file)
    assert (await act(one, caller, sandbox, "start"))["status"] == "running"


async def test_a_node_that_comes_back_brings_the_files(nodes: Sequence[PlatformApi]) -> None:
    one, other = nodes
    caller, admin = await one.account(), await one.admin()
    sandbox = await add_sandbox(one, caller)
    await act(one, caller, sandbox, "start")
    running_at = await find_program(one.data_dir, sandbox["sandbox_id"])
    await run_job(one, "ends")
    path = f"/admin/sandboxes/{sandbox['sandbox_id']}/end"
    end = {"reason": "nobody can reach its machine"}
    early = await other.call("POST", path, admin, json=end)
    assert code_of(early) == (503, "SANDBOX_ELSEWHERE"), "it was seen just now"
    assert (await look(one, caller, sandbox))["status"] == "running"
    one.clock.advance(60)
    ended = await other.post(path, admin, end)
    assert (ended["status"], ended["snapshot_bytes"]) == ("stopped", None)
    report = await run_job(one, "reconcile")
    assert (report.orphans_ended, report.recovered) == (1, 1)
    with pytest.raises(httpx.TransportError):
        await running_at.page()
    one.clock.advance(2 * 3600)
    for api in nodes:
        assert (await run_job(api, "snapshots")).unreferenced_removed == 0
    found = await look(other, caller, sandbox)
    assert (found["status"], found["cost"]) == ("stopped", ended["cost"])
    assert found["snapshot_bytes"] > 0
    assert (await run_job(one, "reconcile")).recovered == 0, "it is known now"
    answer = await other.call("POST", f"/sandboxes/{sandbox['sandbox_id']}/start", caller)
    assert code_of(answer) == (503, "SANDBOX_ELSEWHERE")
    assert (await act(one, caller, sandbox, "start"))["status"] == "running"


async def test_files_of_a_run_whose_end_is_not_recorded_yet_are_not_removed(
    nodes: Sequence[PlatformApi],
) -> None:
    one, _ = nodes
    caller = await one.account()
    sandbox = await add_sandbox(one, caller)
    await act(one, caller, sandbox, "start")
    runtime = one.part.wired.runtime
    [run] = await runtime.list_runs("sandbox")
    await runtime.stop(run.run_id)
    one.clock.advance(2 * 3600)
    assert (await run_job(one, "snapshots")).unreferenced_removed == 0
    assert (await run_job(one, "ends")).closed == 1
    assert (await look(one, caller, sandbox))["snapshot_bytes"] > 0


async def test_a_start_on_the_node_that_has_the_files_brings_them(
    nodes: Sequence[PlatformApi],
) -> None:
    one, other = nodes
    caller = await one.account()
    sandbox = await add_sandbox(one, caller, max_running_seconds=600)
    await act(one, caller, sandbox, "start")
    old = await find_program(one.data_dir, sandbox["sandbox_id"])
    write_file(one, sandbox, "mine")
    one.clock.advance(700)
    assert (await run_job(other, "ends")).overdue == 1
    again = await act(one, caller, sandbox, "start")
    assert await file_of(one, caller, again) == "mine"
    with pytest.raises(httpx.TransportError):
        await old.page()


async def test_a_start_that_failed_elsewhere_keeps_no_files_from_coming_back(
    nodes: Sequence[PlatformApi],
) -> None:
    one, other = nodes
    caller, admin = await one.account(), await one.admin()
    sandbox = await add_sandbox(one, caller)
    await act(one, caller, sandbox, "start")
    write_file(one, sandbox, "mine")
    one.clock.advance(60)
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    await other.post(f"/admin{path}/end", admin, {"reason": "nobody can reach its machine"})
    moved = sa.update(templates).values(repository_url="ftp://gone")
    await one.part.database.write(lambda connection: connection.execute(moved))
    answer = await other.call("POST", f"{path}/start", caller)
    assert code_of(answer) == (400, "INVALID_REPOSITORY_URL")
    again = await act(one, caller, sandbox, "start")
    assert await file_of(one, caller, again) == "mine"


@pytest.mark.parametrize("is_started_elsewhere", [False, True])
async def test_kept_files_that_were_given_up_come_back_unless_it_was_started_elsewhere(
    nodes: Sequence[PlatformApi], is_started_elsewhere: bool
) -> None:
    one, other = nodes
    caller, admin = await one.account(), await one.admin()
    sandbox = await add_sandbox(one, caller)
    await act(one, caller, sandbox, "start")
    stopped = await act(one, caller, sandbox, "stop")
    one.clock.advance(60)
    path = f"/admin/sandboxes/{sandbox['sandbox_id']}/end"
    released = await other.post(path, admin, {"reason": "its machine burned"})
    assert (released["status"], released["snapshot_bytes"]) == ("stopped", None)
    if is_started_elsewhere:
        running = await act(other, caller, sandbox, "start")
        assert (await page_of(other, caller, running)).status_code == 200
    assert (await run_job(one, "reconcile")).recovered == (not is_started_elsewhere)
    if not is_started_elsewhere:
        found = await look(one, caller, sandbox)
        assert found["snapshot_bytes"] == stopped["snapshot_bytes"]
