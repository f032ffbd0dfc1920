"""The Platform's sandboxes with SANDBOX_RUNTIME=e2b, through its API."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from sandyard.bootstrap.previews import open_provider
from sandyard.kit.errors import UnavailableError
from sandyard.previews.errors import ProviderRateLimitedError
from sandyard.settings import SettingsError
from tests.support.clocks import RunningClock
from tests.support.e2b.double import API_KEY
from tests.support.e2b.machines import E2bMachines
from tests.support.platform.in_process import PlatformApi, code_of, platform_api, platform_settings
from tests.support.platform.sandboxes import act, add_sandbox, add_template, look, page_of
from tests.support.runtime.git_server import GitServer

AT_E2B = {"sandbox_runtime": "e2b"}


def e2b_at(double: E2bMachines) -> dict[str, Any]:
    return {
        "e2b_api_key": SecretStr(API_KEY),
        "e2b_api_url": double.url,
        "e2b_sandbox_url": double.url,
    }


@pytest.fixture
async def api(double: E2bMachines, tmp_path: Path) -> AsyncIterator[PlatformApi]:
    (tmp_path / "data").mkdir()
    async with platform_api(
        None, tmp_path / "data", RunningClock(), sandboxes=AT_E2B, e2b=e2b_at(double)
    ) as api:
        yield api


async def run_job(api: PlatformApi, name: str) -> Any:
    [job] = [job for job in api.part.schedule if job.name.split()[0] == name]
    return await api.part.runner.run(job)


async def test_there_are_no_volumes(api: PlatformApi) -> None:
    ann = await api.account()
    refused = await api.call("POST", "/volumes", ann, json={"name": "models"})
    assert code_of(refused) == (501, "VOLUMES_UNSUPPORTED")
    body = {"name": "box", "template_id": await add_template(api)}
    mounted = body | {"volumes": [{"name": "models", "path": "/data"}]}
    answer = await api.call("POST", "/sandboxes", ann, json=mounted)
    assert code_of(answer) == (400, "VOLUME_NOT_USABLE")


async def test_a_sandbox_lives_at_e2b_and_nothing_is_left_of_it_there(
    api: PlatformApi, double: E2bMachines, git: GitServer
) -> None:
    caller = await api.account()
    program = b"web: echo run >>runs; cat runs; exec python3 -m http.server $PORT\n"
    template_id = await add_template(api, git.add("platform", {"Procfile": program}))
    sandbox = await add_sandbox(api, caller, template_id=template_id)
    running = await act(api, caller, sandbox, "start")
    assert running["status"] == "running"
    assert (await page_of(api, caller, running, "/runs")).text == "run\n"
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    assert "run" in (await api.get(f"{path}/logs", caller))["lines"]
    assert (await run_job(api, "measure")).measured == 1
    assert (await run_job(api, "reconcile")).orphans_ended == 0

    stopped = await act(api, caller, sandbox, "stop")
    assert (stopped["status"], stopped["status_reason"]) == ("stopped", "stopped by its owner")
    assert stopped["snapshot_bytes"] > 0
    assert double.boxes == []
    again = await act(api, caller, sandbox, "start")
    assert (await page_of(api, caller, again, "/runs")).text == "run\nrun\n"

    gone = await api.call("DELETE", path, caller)
    assert gone.json()["status"] == "recycled"
    assert (double.boxes, double.snapshots) == ([], {})
    usage = (await api.get("/usage", caller, service_type="sandbox_runtime"))["usage"]
    assert len(usage) == 2
    assert all(Decimal(each["cost"]) >= 0 and each["end_time"] for each in usage)


async def test_it_times_out_and_keeps_its_files(api: PlatformApi, double: E2bMachines) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller, max_running_seconds=1)
    await act(api, caller, sandbox, "start")
    async with asyncio.timeout(60):
        while (await run_job(api, "ends")).closed == 0:
            await asyncio.sleep(0.1)
    over = await look(api, caller, sandbox)
    assert (over["status"], over["status_reason"]) == ("timeout", "it reached its deadline")
    assert over["snapshot_bytes"] > 0
    assert double.boxes == []


async def test_a_start_while_e2b_is_away_changes_nothing(
    api: PlatformApi, double: E2bMachines
) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller)
    double.inject("unavailable")
    answer = await api.call("POST", f"/sandboxes/{sandbox['sandbox_id']}/start", caller)
    assert code_of(answer) == (503, "E2B_UNAVAILABLE")
    assert (await look(api, caller, sandbox))["status"] == "created"


async def test_a_start_whose_sandbox_was_lost_from_sight_is_closed_and_tried_again(
    api: PlatformApi, double: E2bMachines
) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller)
    double.inject("drop_after", "create", times=1)
    answer = await api.call("POST", f"/sandboxes/{sandbox['sandbox_id']}/start", caller)
    assert code_of(answer) == (503, "E2B_UNAVAILABLE")
    assert len(double.boxes) == 1
    assert (await run_job(api, "reconcile")).closed == 1
    lost = await look(api, caller, sandbox)
    assert lost["status"] == "stopped"
    assert lost["status_reason"].startswith("SUPERVISOR_LOST")
    assert double.boxes == []
    assert (await act(api, caller, sandbox, "start"))["status"] == "running"
    assert len(double.boxes) == 1


async def test_previews_stay_where_they_were_set_to(api: PlatformApi, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    provider = open_provider(platform_settings(None, sandboxes=AT_E2B), api.part)
    made = await provider.create(
        project_id="prj-a", attempt="1", files={}, ttl=timedelta(minutes=1)
    )
    try:
        assert made.preview_url == "http://8080-prj-a.localhost/"
    finally:
        await provider.kill(made.sandbox_id)


async def test_after_a_refusal_neither_sandboxes_nor_previews_ask_e2b(
    api: PlatformApi, double: E2bMachines
) -> None:
    settings = platform_settings(None, e2b=e2b_at(double))
    at_e2b = settings.previews.model_copy(update={"preview_provider": "e2b"})
    provider = open_provider(replace(settings, previews=at_e2b), api.part)
    double.inject("rate_limited", "list", times=1, retry_after=17)
    with pytest.raises(UnavailableError):
        await api.part.wired.runtime.check()
    double.reset_counts()
    with pytest.raises(UnavailableError):
        await api.part.wired.runtime.check()
    with pytest.raises(ProviderRateLimitedError) as refused:
        await provider.find_attempt(project_id="prj-a", attempt="1")
    assert refused.value.retry_after in (16, 17)
    assert not double.calls


async def test_without_a_key_it_does_not_begin(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"E2B_API_KEY: must be set for SANDBOX_RUNTIME=e2b"):
        async with platform_api(None, tmp_path, RunningClock(), sandboxes=AT_E2B):
            pass
