"""The files of a stopped sandbox, with a store of files."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.sandboxes.runs import call_machines
from tests.support.clocks import RunningClock
from tests.support.platform.in_process import Caller, PlatformApi, code_of, platform_api
from tests.support.platform.sandboxes import act, add_sandbox, look, page_of

BROKEN = b"web: exec false\n"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[PlatformApi]:
    tmp_path.chmod(0o755)
    local = {"snapshot_store": f"file:{tmp_path / 'share'}"}
    async with platform_api(None, tmp_path / "node", RunningClock(), sandboxes=local) as api:
        yield api
        for held in await api.part.wired.runtime.list_runs("sandbox"):
            await api.part.wired.runtime.stop(held.run_id)


async def write(api: PlatformApi, caller: Caller, path: str, content: bytes) -> httpx.Response:
    return await api.call(
        "PUT", f"{path}/files", caller, params={"path": "Procfile"}, content=content
    )


async def test_a_program_that_no_longer_starts_is_mended_while_its_sandbox_is_stopped(
    api: PlatformApi, tmp_path: Path
) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller, program_policy="never")
    path, procfile = f"/sandboxes/{sandbox['sandbox_id']}", {"path": "Procfile"}
    await act(api, caller, sandbox, "start")
    working = (await api.call("GET", f"{path}/files", caller, params=procfile)).content
    assert (await write(api, caller, path, BROKEN)).is_success
    await act(api, caller, sandbox, "stop")
    await act(api, caller, sandbox, "start")
    failed = await look(api, caller, sandbox)
    assert (failed["status"], failed["program"]["status"]) == ("running", "failed")
    await act(api, caller, sandbox, "stop")
    (tmp_path / "share").rename(tmp_path / "away")
    assert code_of(await write(api, caller, path, working)) == (503, "STORE_UNAVAILABLE")
    (tmp_path / "away").rename(tmp_path / "share")
    read = await api.call("GET", f"{path}/files", caller, params=procfile)
    assert read.content == BROKEN, "a write that was not stored is not made"
    async with asyncio.timeout(60):
        while not (await write(api, caller, path, working)).is_success:
            await asyncio.sleep(0.1)  # the store is asked again after a pause
    mended = await look(api, caller, sandbox)
    assert (mended["status"], mended["stopped_at"] is None) == ("stopped", False)
    running = await act(api, caller, sandbox, "start")
    assert running["program"]["status"] == "running"
    assert (await page_of(api, caller, running)).status_code == 200
    events = (await api.get(f"{path}/history", caller))["events"]
    assert [each["kind"] for each in events].count("snapshot.replaced") == 1


async def test_an_account_has_one_machine_at_a_time_for_files_of_sandboxes_and_volumes(
    api: PlatformApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await api.account()
    volume = await api.post("/volumes", caller, {"name": "data"})
    sandbox = await add_sandbox(api, caller)
    await act(api, caller, sandbox, "start")
    await act(api, caller, sandbox, "stop")
    path, by = f"/sandboxes/{sandbox['sandbox_id']}", Principal(caller.account_id, Role.USER)
    monkeypatch.setattr(call_machines, "_WAIT_SEC", 0.01)
    async with api.part.wired.volume_contents.open(volume["volume_id"], by=by):
        assert code_of(await write(api, caller, path, BROKEN)) == (409, "FILES_BUSY")
    assert (await write(api, caller, path, BROKEN)).is_success
    assert await api.part.wired.runtime.list_runs("files") == []
