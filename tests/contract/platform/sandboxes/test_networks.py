"""The network of sandboxes, as their owners choose and see it, on each engine."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.runtime import FakeRuntime
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import MigratedEngines, PlatformApi, code_of, platform_api
from tests.support.platform.sandboxes import act, add_sandbox, add_template
from tests.support.storage.engines import SQL_ENGINES


@pytest.fixture
def runtime(tmp_path: Path) -> FakeRuntime:
    return FakeRuntime(tmp_path / "machines")


@pytest.fixture(params=SQL_ENGINES)
async def api(
    request: pytest.FixtureRequest,
    migrated: MigratedEngines,
    tmp_path: Path,
    clock: ManualClock,
    runtime: FakeRuntime,
) -> AsyncIterator[PlatformApi]:
    url = await migrated.copy(request.param, tmp_path)
    async with platform_api(url, tmp_path, clock, runtime=runtime) as api:
        yield api
        await runtime.end_all()


async def test_a_network_is_chosen_told_and_changed_at_once(
    api: PlatformApi, runtime: FakeRuntime
) -> None:
    ann = await api.account()
    strict = await add_template(api, network="none")
    assert (await add_sandbox(api, ann))["network"] == "packages"
    assert (await add_sandbox(api, ann, template_id=strict))["network"] == "none"
    sandbox = await add_sandbox(api, ann, template_id=strict, network="internet")
    path, sandbox_id = f"/sandboxes/{sandbox['sandbox_id']}", sandbox["sandbox_id"]
    assert code_of(await api.call("GET", f"{path}/egress", ann)) == (409, "NEVER_STARTED")
    await act(api, ann, sandbox, "start")
    assert runtime.programs[sandbox_id].network == "internet"
    changed = await api.call("PATCH", path, ann, json={"network": "none"})
    assert changed.json()["network"] == "none"
    assert runtime.networks[sandbox_id] == "none"
    report = await api.get(f"{path}/egress", ann)
    assert (report["network"], report["refused"], report["refusals"]) == ("none", 0, [])
    history = (await api.get(f"{path}/history", ann))["events"]
    [update] = [each for each in history if each["kind"] == "sandbox.updated"]
    assert update["data"]["network"] == "none"
    other = await api.account()
    assert code_of(await api.call("GET", f"{path}/egress", other)) == (404, "SANDBOX_UNKNOWN")


async def test_what_was_lost_of_a_change_is_repaired_by_the_same_again(
    api: PlatformApi, runtime: FakeRuntime
) -> None:
    ann = await api.account()
    sandbox = await act(api, ann, await add_sandbox(api, ann, network="none"), "start")
    runtime.networks[sandbox["sandbox_id"]] = "internet"
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    assert (await api.call("PATCH", path, ann, json={"network": "none"})).is_success
    assert runtime.networks[sandbox["sandbox_id"]] == "none"


async def test_a_change_while_it_starts_holds_once_it_runs(
    api: PlatformApi, runtime: FakeRuntime
) -> None:
    ann = await api.account()
    sandbox = await add_sandbox(api, ann, network="internet")
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    runtime.may_start.clear()
    starting = asyncio.ensure_future(act(api, ann, sandbox, "start"))
    while (await api.get(path, ann))["status"] != "starting":
        await asyncio.sleep(0.01)
    assert (await api.call("PATCH", path, ann, json={"network": "none"})).is_success
    runtime.may_start.set()
    assert (await starting)["network"] == "none"
    assert runtime.programs[sandbox["sandbox_id"]].network == "internet"
    assert runtime.networks[sandbox["sandbox_id"]] == "none"


async def test_an_unknown_environment_is_refused(api: PlatformApi) -> None:
    ann = await api.account()
    body = {"name": "mine", "category": "web", "language": "go", "environment": "debian12"}
    body["repository_url"] = "builtin:static"
    refused = await api.call("POST", "/templates", ann, json=body)
    assert code_of(refused) == (409, "ENVIRONMENT_UNKNOWN")
    made = await api.post("/templates", ann, body | {"environment": None})
    path = f"/templates/{made['template_id']}"
    refused = await api.call("PATCH", path, ann, json={"environment": "debian12"})
    assert code_of(refused) == (409, "ENVIRONMENT_UNKNOWN")
