"""API keys with scopes and an end, who may sign up, and sandboxes that move."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sandyard.kit.clock import utc_time
from sandyard.platform.access.principal import Role
from tests.contract.platform.paid import project_of
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import (
    PASSWORD,
    Caller,
    MigratedEngines,
    PlatformApi,
    code_of,
    platform_api,
)
from tests.support.platform.sandboxes import add_sandbox, add_template

ALLOWED = {
    "read": {"GET /sandboxes", "GET /projects"},
    "run": {"GET /sandboxes", "GET /projects", "POST /sandboxes"},
    "admin": {
        "GET /sandboxes",
        "GET /projects",
        "POST /sandboxes",
        "POST /projects",
        "GET /admin/users",
    },
}


async def key_of(api: PlatformApi, caller: Caller, **fields: Any) -> Caller:
    made = await api.post("/api-keys", caller, {"name": f"k{api.clock.now()}", **fields})
    headers = {"X-API-Key": made["api_key"]}
    return Caller(caller.account_id, caller.email, caller.username, headers)


@pytest.mark.parametrize("scope", ALLOWED)
async def test_a_key_may_what_its_scope_includes(api: PlatformApi, scope: str) -> None:
    admin = await api.account(role=Role.ADMIN)
    key = await key_of(api, admin, scope=scope)
    template_id = await add_template(api)
    bodies = {
        "POST /sandboxes": {"name": "box", "template_id": template_id},
        "POST /projects": {"name": "new"},
    }
    for call in ALLOWED["admin"]:
        method, path = call.split()
        answer = await api.call(method, path, key, json=bodies.get(call))
        if call in ALLOWED[scope]:
            assert answer.is_success, (call, answer.text)
        else:
            assert code_of(answer) == (403, "SCOPE_MISSING"), call


async def test_who_may_run_a_sandbox_may_open_it(api: PlatformApi) -> None:
    ann = await api.account()
    path = f"/sandboxes/{(await add_sandbox(api, ann))['sandbox_id']}/tokens"
    reader, runner = [await key_of(api, ann, name=each, scope=each) for each in ("read", "run")]
    assert (await api.call("POST", path, runner, json={})).status_code == 201
    assert code_of(await api.call("POST", path, reader, json={})) == (403, "SCOPE_MISSING")


async def test_a_key_without_a_scope_keeps_all_and_lists_show_which_it_is(
    api: PlatformApi,
) -> None:
    ann = await api.account()
    made = await api.post("/api-keys", ann, {"name": "all"})
    [listed] = (await api.get("/api-keys", ann))["api_keys"]
    assert (listed["scope"], listed["expires_at"]) == ("admin", None)
    assert made["api_key"].startswith(listed["prefix"])


async def test_a_key_ends_to_the_second(api: PlatformApi) -> None:
    ann = await api.account()
    end = utc_time(api.clock.now()) + timedelta(hours=1)
    key = await key_of(api, ann, expires_at=end.isoformat())
    api.clock.advance(3599)
    assert (await api.call("GET", "/me", key)).status_code == 200
    api.clock.advance(1)
    assert code_of(await api.call("GET", "/me", key)) == (401, "LOGIN_REQUIRED")
    late = {"name": "late", "expires_at": end.isoformat()}
    assert code_of(await api.call("POST", "/api-keys", ann, json=late)) == (400, "EXPIRY_PASSED")


async def test_a_sandbox_moves_to_another_project_of_its_owner(api: PlatformApi) -> None:
    ann, bob = await api.account(), await api.account()
    sandbox = await add_sandbox(api, ann)
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    target = await project_of(api, ann, "target")
    moved = await api.call("PATCH", path, ann, json={"project_id": target})
    assert moved.json()["project_id"] == target
    listed = await api.get("/sandboxes", ann, project_id=target)
    assert [each["sandbox_id"] for each in listed["sandboxes"]] == [sandbox["sandbox_id"]]
    for project_id in (await project_of(api, bob, "theirs"), "prj-" + "a" * 17):
        answer = await api.call("PATCH", path, ann, json={"project_id": project_id})
        assert code_of(answer) == (400, "PROJECT_NOT_USABLE")
    archived = await project_of(api, ann, "archived")
    await api.post(f"/projects/{archived}/archive", ann)
    answer = await api.call("PATCH", path, ann, json={"project_id": archived})
    assert code_of(answer) == (409, "PROJECT_READ_ONLY")
    answer = await api.call("PATCH", path, ann, json={"project_id": None})
    assert answer.json()["project_id"] is None


async def sign_up(api: PlatformApi, username: str, **fields: Any) -> Any:
    body = {"email": f"{username}@example.com", "username": username, "password": PASSWORD}
    return await api.call("POST", "/auth/signup", json=body | fields)


async def test_with_invitations_only_the_invited_sign_up(
    migrated: MigratedEngines, tmp_path: Path, clock: ManualClock
) -> None:
    await migrated.copy("sqlite", tmp_path)
    async with platform_api(None, tmp_path, clock, signup="invite") as api:
        admin = await api.admin()
        await api.post("/admin/invitations", admin, {"email": "Eve@example.com"})
        invitation = await api.last_token()
        mail = (await api.mails())[-1].get_content()
        assert f"/console/signup?token={invitation}" in mail
        for username, token in (("eve", None), ("eve", "x"), ("other", invitation)):
            refused = await sign_up(api, username, invitation=token)
            assert code_of(refused) == (403, "INVITATION_REQUIRED")
        assert (await sign_up(api, "eve", invitation=invitation)).status_code == 202
        await api.post("/auth/verify", None, {"token": await api.last_token()})
        events = (await api.get("/events", admin))["events"]
        [sent] = [each for each in events if each["kind"] == "invitation.sent"]
        assert sent["data"] == {"email": "eve@example.com"}
        assert invitation not in str(events)
        clock.advance(7 * 86_400)
        late = await sign_up(api, "eve", invitation=invitation)
        assert code_of(late) == (403, "INVITATION_REQUIRED")
        user = await api.account()
        refused = await api.call("POST", "/admin/invitations", user, json={"email": "a@b.example"})
        assert code_of(refused) == (403, "ADMINS_ONLY")


async def test_nobody_signs_up_where_that_is_closed(
    migrated: MigratedEngines, tmp_path: Path, clock: ManualClock
) -> None:
    await migrated.copy("sqlite", tmp_path)
    async with platform_api(None, tmp_path, clock, signup="closed") as api:
        assert code_of(await sign_up(api, "eve")) == (403, "SIGNUP_CLOSED")
        admin = await api.admin()
        body = {"email": "eve@example.com"}
        refused = await api.call("POST", "/admin/invitations", admin, json=body)
        assert code_of(refused) == (403, "SIGNUP_CLOSED")
