"""Access to sandboxes through the API: private at first, opened by tokens or for all."""

from typing import Any

import pytest

from tests.support.platform.in_process import PlatformApi, code_of
from tests.support.platform.sandboxes import add_sandbox


async def test_it_is_private_until_its_owner_says_otherwise(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller)
    assert (sandbox["is_public"], sandbox["wake_on_request"]) == (False, False)
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    url = f"http://3000-{sandbox['sandbox_id']}.localhost/"
    assert code_of(await api.client.get(url)) == (404, "ADDRESS_UNKNOWN")
    changed = await api.call("PATCH", path, caller, json={"is_public": True})
    assert changed.json()["is_public"] is True
    assert code_of(await api.client.get(url)) == (502, "SANDBOX_NOT_RUNNING")
    history = await api.get(f"{path}/history", caller)
    assert history["events"][0]["kind"] == "sandbox.updated"
    assert history["events"][0]["data"]["is_public"] is True
    other = await api.account()
    assert (await api.call("PATCH", path, other, json={"is_public": False})).status_code == 404


async def test_a_token_is_made_for_ones_own_alone(api: PlatformApi) -> None:
    caller, other = await api.account(), await api.account()
    sandbox = await add_sandbox(api, caller)
    path = f"/sandboxes/{sandbox['sandbox_id']}/tokens"
    made = await api.post(path, caller, {"port": 3000, "minutes": 5})
    host = f"3000-{sandbox['sandbox_id']}.localhost"
    assert made["url"] == f"http://{host}/?sandyard_token={made['token']}"
    answer = await api.client.get(f"http://{host}/", headers={"X-Access-Token": made["token"]})
    assert code_of(answer) == (502, "SANDBOX_NOT_RUNNING")
    for whose, where in ((other, path), (caller, "/sandboxes/sbx-00000000000000000/tokens")):
        assert code_of(await api.call("POST", where, whose, json={})) == (404, "TARGET_UNKNOWN")
    assert (await api.call("POST", path, json={})).status_code == 401


@pytest.mark.parametrize("body", [{"minutes": 0}, {"minutes": 1441}, {"port": 0}, {"x": 1}])
async def test_a_token_has_limits(api: PlatformApi, body: dict[str, Any]) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller)
    path = f"/sandboxes/{sandbox['sandbox_id']}/tokens"
    assert (await api.call("POST", path, caller, json=body)).status_code == 400


async def test_a_token_ends_with_the_key_that_requested_it(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller)
    key = await api.post("/api-keys", caller, {"name": "page", "scope": "run"})
    path = f"/sandboxes/{sandbox['sandbox_id']}/tokens"
    made = await api.call("POST", path, json={}, headers={"X-API-Key": key["api_key"]})
    headers = {"X-Access-Token": made.json()["token"]}
    url = f"http://3000-{sandbox['sandbox_id']}.localhost/"
    assert code_of(await api.client.get(url, headers=headers)) == (502, "SANDBOX_NOT_RUNNING")
    await api.call("DELETE", f"/api-keys/{key['key_id']}", caller)
    answer = await api.client.get(url, headers=headers)
    assert code_of(answer) == (401, "ACCESS_TOKEN_INVALID")


async def test_a_deactivated_account_has_no_tokens_any_more(api: PlatformApi) -> None:
    caller, admin = await api.account(), await api.admin()
    sandbox = await add_sandbox(api, caller)
    made = await api.post(f"/sandboxes/{sandbox['sandbox_id']}/tokens", caller, {})
    await api.post(f"/admin/users/{caller.account_id}/deactivate", admin)
    answer = await api.client.get(made["url"])
    assert code_of(answer) == (401, "ACCESS_TOKEN_INVALID")
