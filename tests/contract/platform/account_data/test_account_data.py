"""Taking all that is one's along, and leaving for good, on each engine."""

import json
from typing import Any

from sandyard.platform.account_data.jobs import ErasureReport
from sandyard.platform.events.verification import verify_platform
from tests.support.platform.in_process import PASSWORD, Caller, PlatformApi, code_of
from tests.support.platform.sandboxes import add_sandbox

SECRET = "hunter2"


async def furnish(api: PlatformApi, caller: Caller) -> str:
    """A sandbox, a key, a template, a variable and a secret; the key."""
    sandbox = await add_sandbox(api, caller)
    path = f"/projects/{sandbox['project_id']}/env"
    await api.call("PUT", f"{path}/TOKEN", caller, json={"value": SECRET, "secret": True})
    template = {"name": "mine", "category": "web", "language": "go"}
    template["repository_url"] = "https://example.com/mine.git"
    await api.post("/templates", caller, template)
    key: str = (await api.post("/api-keys", caller, {"name": "laptop"}))["api_key"]
    return key


async def exported(api: PlatformApi, caller: Caller) -> tuple[dict[str, Any], str]:
    answer = await api.call("GET", "/me/export", caller)
    assert answer.status_code == 200, answer.text
    assert "attachment" in answer.headers["content-disposition"]
    return json.loads(answer.text), answer.text


async def erase(api: PlatformApi) -> ErasureReport:
    [job] = [each for each in api.part.schedule if each.name == "deleted-accounts"]
    report: ErasureReport = await api.part.runner.run(job)
    return report


async def leave(api: PlatformApi, caller: Caller, password: str = PASSWORD) -> Any:
    return await api.call("POST", "/me/delete", caller, json={"password": password})


async def test_an_export_has_all_that_is_an_accounts_and_nothing_else(api: PlatformApi) -> None:
    ann, bob = await api.account("ann"), await api.account("bob")
    keys = [await furnish(api, each) for each in (ann, bob)]
    found, text = await exported(api, ann)
    counts = {kind: len(records) for kind, records in found.items()}
    once = ("account", "projects", "templates", "api_keys", "variables", "sandboxes")
    assert [counts[kind] for kind in once] == [1] * len(once)
    assert counts["events"] >= 6
    assert found["account"][0]["email"] == "ann@example.com"
    for hidden in (SECRET, *keys, bob.account_id, "bob@", "argon2", "password_hash", "key_hash"):
        assert hidden not in text


async def test_an_export_of_many_is_whole(api: PlatformApi) -> None:
    ann = await api.account()
    for number in range(3):
        await api.post("/projects", ann, {"name": f"project {number}"})
    found, _ = await exported(api, ann)
    names = [each["name"] for each in found["projects"]]
    assert names == ["Default", "project 0", "project 1", "project 2"]


async def test_a_deleted_account_is_out_at_once_and_its_name_is_free(api: PlatformApi) -> None:
    ann = await api.account("ann")
    key = await furnish(api, ann)
    assert code_of(await leave(api, ann, "wrong one")) == (403, "WRONG_PASSWORD")
    by_key = await api.call(
        "POST", "/me/delete", headers={"X-API-Key": key}, json={"password": PASSWORD}
    )
    assert code_of(by_key) == (403, "LOGIN_NEEDED")
    assert (await leave(api, ann)).json() == {"status": "deleted"}
    for headers in (ann.headers, {"X-API-Key": key}):
        answer = await api.call("GET", "/me", headers=headers)
        assert code_of(answer) == (401, "LOGIN_REQUIRED")
    for login in ("ann", "ann@example.com", f"deleted:{ann.account_id}"):
        body = {"login": login, "password": PASSWORD}
        assert code_of(await api.call("POST", "/auth/login", json=body))[0] == 401
    again = await api.account("ann")
    assert again.account_id != ann.account_id


async def test_what_it_had_is_removed_and_its_bills_stay(api: PlatformApi) -> None:
    ann, bob = await api.account(), await api.account()
    for each in (ann, bob):
        await furnish(api, each)
    await leave(api, ann)
    report = await erase(api)
    assert (report.accounts, report.sandboxes, report.failed) == (1, 1, 0)
    assert await erase(api) == ErasureReport()
    store = api.part.export
    left = {
        name: [each async for batch in read(ann.account_id) for each in batch]
        for name, read in store.sections
    }
    assert left["variables"] == []
    assert [each["status"] for each in left["sandboxes"]] == ["recycled"]
    for kind in ("projects", "templates", "api_keys", "notifications"):
        assert all(each["deleted_at"] for each in left[kind]), kind
    assert [each["full_name"] for each in left["account"]] == [None]
    found, _ = await exported(api, bob)
    assert (len(found["variables"]), found["projects"][0]["deleted_at"]) == (1, None)
    assert (await verify_platform(api.part.database)).problems == []


async def test_admins_see_it_no_more_and_the_last_admin_stays(api: PlatformApi) -> None:
    admin, ann = await api.admin(), await api.account("ann")
    assert code_of(await leave(api, admin)) == (409, "LAST_ADMIN")
    await leave(api, ann)
    users = (await api.get("/admin/users", admin))["users"]
    assert [each["account_id"] for each in users] == [admin.account_id]
    for action in ("activate", "deactivate"):
        answer = await api.call("POST", f"/admin/users/{ann.account_id}/{action}", admin)
        assert code_of(answer) == (404, "ACCOUNT_NOT_FOUND")
