"""The isolation of sandboxes: what their template asks for, and what they have had."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.runtime import FakeRuntime
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import MigratedEngines, PlatformApi, code_of, platform_api
from tests.support.platform.sandboxes import act, add_sandbox, add_template
from tests.support.storage.engines import SQL_ENGINES

NEW = {
    "name": "strict",
    "category": "web",
    "language": "any",
    "repository_url": "builtin:base",
    "min_memory_required": 0.5,
}


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


async def test_a_template_asks_for_more_than_the_servers_own_and_never_gets_less(
    api: PlatformApi, runtime: FakeRuntime
) -> None:
    ann = await api.account()
    made = await api.call("POST", "/templates", ann, json={**NEW, "isolation": "gvisor"})
    assert made.json()["isolation"] == "gvisor"
    strict = await add_sandbox(api, ann, template_id=made.json()["template_id"])
    plain = await add_sandbox(api, ann)
    assert strict["isolation"] is None
    assert (await act(api, ann, strict, "start"))["isolation"] == "gvisor"
    assert (await act(api, ann, plain, "start"))["isolation"] == "bubblewrap"
    runtime.isolation = "gvisor"
    weak = await add_template(api, isolation="bubblewrap")
    sandbox = await add_sandbox(api, ann, template_id=weak)
    assert (await act(api, ann, sandbox, "start"))["isolation"] == "gvisor"


async def test_a_sandbox_keeps_what_it_has_had(api: PlatformApi, runtime: FakeRuntime) -> None:
    ann = await api.account()
    runtime.isolation = "gvisor"
    sandbox = await add_sandbox(api, ann)
    await act(api, ann, sandbox, "start")
    await act(api, ann, sandbox, "stop")
    runtime.isolation = "bubblewrap"
    assert (await act(api, ann, sandbox, "start"))["isolation"] == "gvisor"
    await act(api, ann, sandbox, "stop")
    runtime.missing = {"gvisor"}
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    refused = await api.call("POST", f"{path}/start", ann)
    assert code_of(refused) == (503, "ISOLATION_MISSING")
    assert (await api.get(path, ann))["status"] == "stopped"


async def test_what_is_missing_here_is_refused_to_templates(
    api: PlatformApi, runtime: FakeRuntime
) -> None:
    ann = await api.account()
    runtime.missing = {"gvisor"}
    refused = await api.call("POST", "/templates", ann, json={**NEW, "isolation": "gvisor"})
    assert code_of(refused) == (503, "ISOLATION_MISSING")
    made = await api.call("POST", "/templates", ann, json=NEW)
    path = f"/templates/{made.json()['template_id']}"
    refused = await api.call("PATCH", path, ann, json={"isolation": "gvisor"})
    assert code_of(refused) == (503, "ISOLATION_MISSING")
    assert (await api.get(path, ann))["isolation"] is None
