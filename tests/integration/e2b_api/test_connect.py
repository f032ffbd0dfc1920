"""Connecting to a sandbox: how long it runs, and what stays as it was."""

from datetime import datetime, timedelta

from tests.integration.e2b_api.conftest import E2b


async def test_a_connect_sets_the_end_of_this_run_alone(e2b: E2b) -> None:
    made = await e2b.create(timeout=3600, autoPause=True)
    path = f"/sandboxes/{made['sandboxID']}"
    assert (await e2b.call("POST", f"{path}/pause")).status_code == 204
    resumed = await e2b.call("POST", f"/v2{path}/connect", {"timeout": 300})
    assert resumed.status_code == 201
    shown = (await e2b.call("GET", path)).json()
    ends, began = (datetime.fromisoformat(shown[name]) for name in ("endAt", "startedAt"))
    assert ends - began <= timedelta(seconds=301)
    stored = await e2b.platform.get(path, e2b.account)
    assert stored["max_running_seconds"] == 3600


async def test_a_connect_to_a_running_sandbox_only_lengthens_its_time(e2b: E2b) -> None:
    made = await e2b.create(timeout=600)
    path = f"/sandboxes/{made['sandboxID']}"
    before = (await e2b.call("GET", path)).json()["endAt"]
    assert (await e2b.call("POST", f"{path}/connect", {"timeout": 5})).status_code == 200
    assert (await e2b.call("GET", path)).json()["endAt"] == before
    assert (await e2b.call("POST", f"{path}/resume", {"timeout": 5})).status_code == 409
