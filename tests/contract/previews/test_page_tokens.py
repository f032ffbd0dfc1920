"""Tokens of pages, a preview that is stopped, and changes from an expected version."""

import pytest

from tests.support.platform.in_process import Caller, code_of
from tests.support.previews.in_process import PreviewApi


async def page_of(api: PreviewApi, caller: Caller, project: str, *scopes: str) -> Caller:
    """A page that shows the project, with a token of these scopes."""
    body = {"scopes": list(scopes), "minutes": 5}
    made = await api.post(f"/projects/{project}/tokens", caller, body)
    return Caller("", "", "", {"Authorization": f"Bearer {made['token']}"})


async def test_a_page_may_do_what_its_scopes_name_and_nothing_else(api: PreviewApi) -> None:
    caller = await api.account()
    project, other = await api.project(caller, index="hello"), await api.project(caller)
    page = await page_of(api, caller, project, "status")
    assert (await api.status(page, project))["status"] == "not_found"
    sync = await api.call("POST", f"/projects/{project}/sync", page)
    assert code_of(sync) == (401, "ACCESS_TOKEN_INVALID")
    foreign = await api.call("GET", f"/projects/{other}/sandbox/status", page)
    assert code_of(foreign) == (401, "ACCESS_TOKEN_INVALID")
    for path in (f"/projects/{project}/files", "/projects", "/me"):
        assert (await api.call("GET", path, page)).status_code == 401
    both = await page_of(api, caller, project, "status", "sync")
    assert (await api.sync(both, project))["success"]
    assert (await api.status(both, project))["status"] == "running"


async def test_a_token_is_made_for_ones_own_project_alone(api: PreviewApi) -> None:
    project = await api.project(await api.account())
    answer = await api.call("POST", f"/projects/{project}/tokens", await api.account(), json={})
    assert code_of(answer) == (404, "TARGET_UNKNOWN")


async def test_a_preview_is_stopped_and_made_anew_by_the_next_sync(api: PreviewApi) -> None:
    caller = await api.account()
    project = await api.project(caller, index="hello")
    path = f"/projects/{project}/sandbox"
    stopped = await api.call("DELETE", path, caller)
    assert stopped.json()["status"] == "not_found"
    first = await api.sync(caller, project)
    stopped = await api.call("DELETE", path, caller)
    assert (stopped.status_code, stopped.json()["status"]) == (200, "expired")
    assert (await api.call("DELETE", path, caller)).json()["status"] == "expired"
    again = await api.sync(caller, project)
    ids = {each["data"]["sandbox_info"]["sandbox_id"] for each in (first, again)}
    assert len(ids) == 2
    assert (await api.call("DELETE", path, await api.account())).status_code == 404


@pytest.mark.parametrize("expected", [0, 2])
async def test_a_change_from_another_version_is_refused(api: PreviewApi, expected: int) -> None:
    caller = await api.account()
    project = await api.project(caller, index="one")
    body = {"files": [{"path": "index", "content": "two"}], "expected_version": expected}
    refused = await api.call("PUT", f"/projects/{project}/files", caller, json=body)
    assert code_of(refused) == (409, "FILES_VERSION_CONFLICT")
    assert refused.json()["error"]["details"] == {"version": 1}
    body["expected_version"] = 1
    changed = await api.call("PUT", f"/projects/{project}/files", caller, json=body)
    assert changed.json()["version"] == 2


@pytest.mark.parametrize(("scope", "is_enough"), [("read", False), ("run", True), ("admin", True)])
async def test_a_key_may_sync_if_it_may_make_tokens_that_do(
    api: PreviewApi, scope: str, is_enough: bool
) -> None:
    caller = await api.account()
    project = await api.project(caller, index="hello")
    made = await api.post("/api-keys", caller, {"name": "key", "scope": scope})
    key = Caller("", "", "", {"Authorization": f"Bearer {made['api_key']}"})
    token = await api.call("POST", f"/projects/{project}/tokens", key, json={"scopes": ["sync"]})
    sync = await api.call("POST", f"/projects/{project}/sync", key)
    assert (token.status_code == 201, sync.status_code == 200) == (is_enough, is_enough)
