"""Writes in a loop: few per account, and small in the history."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.platform.events.verification import verify_platform
from tests.fakes.runtime import FakeRuntime
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import PlatformApi, platform_api
from tests.support.platform.sandboxes import act, add_sandbox


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[PlatformApi]:
    runtime, clock = FakeRuntime(tmp_path / "machines"), ManualClock(time.time())
    async with platform_api(
        None, tmp_path, clock, runtime=runtime, writes_per_account="5/hour"
    ) as api:
        yield api
    await runtime.end_all()


async def test_writes_have_a_rate_of_their_own(api: PlatformApi) -> None:
    ann = await api.account()
    sandbox = await add_sandbox(api, ann)
    await act(api, ann, sandbox, "start")
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    for _ in range(20):
        body = {"path": "folder"}
        assert (await api.call("GET", path, ann)).status_code == 200
        inside = await api.call("POST", f"{path}/files/mkdir", ann, json=body)
        assert inside.status_code == 200, "what is inside a sandbox is no write of the server"
    answers = [
        (await api.call("PATCH", path, ann, json={"description": f"{number}"})).status_code
        for number in range(6)
    ]
    allowed = answers.count(200)
    assert answers == [200] * allowed + [429] * (6 - allowed)
    assert 0 < allowed < 6
    assert (await api.call("GET", path, ann)).status_code == 200
    refused = await api.client.post(
        "/e2b/v2/sandboxes", json={"templateID": "base"}, headers=ann.headers
    )
    assert refused.status_code == 429
    other = await api.account()
    assert (await api.call("POST", "/projects", other, json={"name": "a"})).status_code == 201


async def test_commands_with_a_key_are_writes(api: PlatformApi) -> None:
    """Their answers are recorded."""
    ann = await api.account()
    sandbox = await add_sandbox(api, ann)
    await act(api, ann, sandbox, "start")
    statuses = set()
    for number in range(6):
        options = {"json": {"command": "true"}, "headers": {"Idempotency-Key": f"{number}"}}
        path = f"/sandboxes/{sandbox['sandbox_id']}/commands"
        statuses.add((await api.call("POST", path, ann, **options)).status_code)
    assert statuses == {201, 429}


async def test_long_texts_are_hashes_in_the_history(tmp_path: Path) -> None:
    clock = ManualClock(time.time())
    async with platform_api(None, tmp_path, clock) as api:
        ann = await api.account()
        made = await api.post("/projects", ann, {"name": "a", "description": "x" * 10_000})
        path = f"/projects/{made['project_id']}"
        for number in range(60):  # past a change that records the whole state
            body = {"description": f"{number}" * 5000}
            assert (await api.call("PATCH", path, ann, json=body)).status_code == 200
        events = (await api.get("/events", ann, subject=made["project_id"], limit=100))["events"]
        assert len(events) == 61
        assert events[0]["data"]["description"]["bytes"] == 10_002
        assert max(len(json.dumps(each["data"])) for each in events) < 1000
        assert (await verify_platform(api.part.database)).problems == []
