"""Two accounts, every route, by login and by key: the other's things are not there."""

from typing import Any

import pytest

from sandyard.platform.access.principal import Role
from tests.support.platform.in_process import Caller, PlatformApi, code_of, counted_statements
from tests.support.platform.sandboxes import add_sandbox

TEMPLATE = {
    "name": "mine",
    "category": "web",
    "language": "go",
    "repository_url": "https://example.com/a/b",
}
CALLS = [
    ("GET", "/projects/{project_id}", None),
    ("PATCH", "/projects/{project_id}", {"name": "taken over"}),
    ("POST", "/projects/{project_id}/archive", None),
    ("POST", "/projects/{project_id}/unarchive", None),
    ("POST", "/projects/{project_id}/make-default", None),
    ("DELETE", "/projects/{project_id}", None),
    ("GET", "/templates/{template_id}", None),
    ("PATCH", "/templates/{template_id}", {"name": "taken over"}),
    ("DELETE", "/templates/{template_id}", None),
    ("GET", "/api-keys/{key_id}", None),
    ("PATCH", "/api-keys/{key_id}", {"name": "taken over"}),
    ("POST", "/api-keys/{key_id}/activate", None),
    ("POST", "/api-keys/{key_id}/deactivate", None),
    ("DELETE", "/api-keys/{key_id}", None),
    ("GET", "/notifications/{notification_id}", None),
    ("POST", "/notifications/{notification_id}/read", None),
    ("DELETE", "/notifications/{notification_id}", None),
    ("GET", "/sandboxes/{sandbox_id}", None),
    ("PATCH", "/sandboxes/{sandbox_id}", {"name": "taken-over"}),
    ("POST", "/sandboxes/{sandbox_id}/start", None),
    ("POST", "/sandboxes/{sandbox_id}/stop", None),
    ("DELETE", "/sandboxes/{sandbox_id}", None),
]
ODD_IDS = ["x", "prj-" + "a" * 17, "prj-" + "A" * 17, "%00", "..%2f", "a" * 300, "prj-é" + "a" * 16]
LISTS = ["/projects", "/templates", "/api-keys", "/notifications"]
"""Listings of one's own things; each row is made by `fill`."""
ADMIN_LISTS = ["/admin/users"]


async def key_of(api: PlatformApi, caller: Caller) -> Caller:
    """The same account, by an API key."""
    made = await api.post("/api-keys", caller, {"name": "by key"})
    headers = {"X-API-Key": made["api_key"]}
    return Caller(caller.account_id, caller.email, caller.username, headers)


async def things_of(api: PlatformApi, caller: Caller) -> dict[str, str]:
    made: dict[str, Any] = {}
    made |= await api.post("/projects", caller, {"name": "mine"})
    made |= await api.post("/templates", caller, TEMPLATE)
    made |= await api.post("/api-keys", caller, {"name": "mine"})
    [notification] = (await api.get("/notifications", caller))["notifications"]
    sandbox = await add_sandbox(api, caller)
    ids = made | notification | {"sandbox_id": sandbox["sandbox_id"]}
    kinds = ("project", "template", "key", "notification", "sandbox")
    return {f"{kind}_id": ids[f"{kind}_id"] for kind in kinds}


async def fill(api: PlatformApi, caller: Caller, rows: range) -> None:
    """One more row in every listing for each number."""
    for number in rows:
        await api.post("/projects", caller, {"name": f"p{number}"})
        await api.post("/templates", caller, TEMPLATE | {"name": f"t{number}", "tags": ["x"]})
        await api.post("/api-keys", caller, {"name": f"k{number}"})
        await api.account()


@pytest.mark.parametrize("role", Role)
async def test_anothers_things_are_not_found_by_login_or_key(api: PlatformApi, role: Role) -> None:
    ann, bob = await api.account(), await api.account(role=role)
    theirs = await things_of(api, ann)
    for caller in (bob, await key_of(api, bob)):
        for method, path, body in CALLS:
            answer = await api.call(method, path.format(**theirs), caller, json=body)
            assert answer.status_code == 404, (method, path, answer.text)
        for path in (*LISTS, "/sandboxes"):
            for parameters in ({}, {"q": "mine"}, {"sort": "name"}):
                if path == "/notifications" and parameters:
                    continue
                shown = str(await api.get(path, caller, **parameters))
                assert not [each for each in theirs.values() if each in shown], path
        assert await api.post("/notifications/read-all", caller) is not None
    [unread] = (await api.get("/notifications", ann, unread=True))["notifications"]
    assert unread["notification_id"] == theirs["notification_id"]
    for method, path, _ in CALLS:
        if method == "GET":
            await api.get(path.format(**theirs), ann)


async def test_every_route_wants_a_credential(api: PlatformApi) -> None:
    open_to_all = {
        *("/auth/signup", "/auth/verify", "/auth/resend", "/auth/login"),
        *("/auth/password/forgot", "/auth/password/reset"),
        *("/auth/oidc/begin", "/auth/oidc/finish"),
    }
    document = api.app.openapi()
    tried = 0
    for path, operations in document["paths"].items():
        if not path.startswith("/api/v1") or path.removeprefix("/api/v1") in open_to_all:
            continue
        for method, operation in operations.items():
            answer = await api.client.request(method, path.replace("{", "").replace("}", ""))
            assert code_of(answer) == (401, "LOGIN_REQUIRED"), (method, path)
            assert operation["security"] == [{"Login": []}, {"AccountKey": []}]
            assert "401" in operation["responses"]
            tried += 1
    assert tried >= 30


async def test_admins_endpoints_are_closed_to_users_by_login_and_by_key(api: PlatformApi) -> None:
    ann = await api.account()
    bodies = {
        "role": {"role": "admin"},
        "notifications": {"title": "t", "message": "m"},
        "end": {"reason": "r"},
    }
    tried = 0
    for caller in (ann, await key_of(api, ann)):
        for path, operations in api.app.openapi()["paths"].items():
            if not path.startswith("/api/v1/admin"):
                continue
            for method in operations:
                there = path.replace("{account_id}", ann.account_id)
                body = bodies.get(path.rpartition("/")[2])
                answer = await api.client.request(method, there, headers=caller.headers, json=body)
                assert code_of(answer) == (403, "ADMINS_ONLY"), (method, path)
                tried += 1
    assert tried == 22


async def test_ids_that_nobody_made_are_not_found(api: PlatformApi) -> None:
    ann, admin = await api.account(), await api.admin()
    for odd in ODD_IDS:
        for method, path, body in CALLS:
            there = path.split("{")[0] + odd + path.partition("}")[2]
            answer = await api.call(method, there, ann, json=body)
            assert answer.status_code == 404, (method, there, answer.text)
        for action in ("", "/activate", "/deactivate"):
            method = "POST" if action else "GET"
            answer = await api.call(method, f"/admin/users/{odd}{action}", admin)
            assert answer.status_code == 404, (odd, action, answer.text)


async def test_the_statements_of_a_listing_do_not_grow_with_its_rows(api: PlatformApi) -> None:
    admin = await api.admin()
    by_key = await key_of(api, admin)
    counts: list[dict[str, set[int]]] = []
    for rows in (range(2), range(2, 12)):
        await fill(api, admin, rows)
        counts.append(
            {
                path: {
                    await selects_of(api, path, caller, at_least=rows.stop)
                    for caller in (admin, by_key)
                }
                for path in [*LISTS, *ADMIN_LISTS]
            }
        )
    assert counts[0] == counts[1]
    assert all(found == {2} for found in counts[1].values()), "the caller, and the rows"


async def selects_of(api: PlatformApi, path: str, caller: Caller, *, at_least: int) -> int:
    """How many statements read something for this listing."""
    with counted_statements() as statements:
        page = await api.get(path, caller, limit=100)
    [items] = [value for key, value in page.items() if key != "next_cursor"]
    assert len(items) >= at_least
    return sum(statement.startswith("SELECT") for statement in statements)
