"""API keys, projects, templates and notifications through their lives, on both engines."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.kit.clock import utc_time
from sandyard.platform.schema.tables import projects, sandboxes, templates
from sandyard.platform.templates.model import BARE, BUILTIN
from tests.support.platform.in_process import (
    PASSWORD,
    Caller,
    PlatformApi,
    code_of,
    counted_statements,
)

TEMPLATE = {
    "name": "mine",
    "category": "web",
    "language": "go",
    "repository_url": "https://github.com/someone/thing.git",
    "tags": ["a", "b c"],
}


async def made(api: PlatformApi, path: str, caller: Caller, **body: Any) -> dict[str, Any]:
    found: dict[str, Any] = await api.post(path, caller, body)
    return found


async def names(api: PlatformApi, path: str, caller: Caller, **parameters: Any) -> list[str]:
    """The names in a listing, read page by page."""
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await api.get(path, caller, limit=2, **parameters, **cursor)
        [items] = [value for key, value in page.items() if key != "next_cursor"]
        assert len(items) <= 2
        found += [item.get("name") or item["title"] for item in items]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


async def test_a_key_opens_what_a_login_opens_until_it_is_taken_away(api: PlatformApi) -> None:
    ann = await api.account()
    key = await made(api, "/api-keys", ann, name="ci", description="for CI")
    assert key["api_key"].startswith("sbk-")
    assert len(key["api_key"]) == 44
    path = f"/api-keys/{key['key_id']}"
    for headers in (
        {"X-API-Key": key["api_key"]},
        {"Authorization": f"Bearer {key['api_key']}"},
    ):
        by_key = Caller(ann.account_id, ann.email, ann.username, headers)
        assert (await api.get("/me", by_key))["account_id"] == ann.account_id
        await api.post(f"{path}/deactivate", by_key)
        assert code_of(await api.call("GET", "/me", by_key)) == (401, "LOGIN_REQUIRED")
        await api.post(f"{path}/activate", ann)
        await api.get("/me", by_key)
    await api.post("/auth/logout", by_key)
    await api.get("/me", by_key)
    assert (await api.call("DELETE", path, by_key)).status_code == 204
    assert (await api.call("GET", "/me", by_key)).status_code == 401


async def test_a_key_makes_no_keys(api: PlatformApi) -> None:
    ann = await api.account()
    key = await made(api, "/api-keys", ann, name="ci")
    by_key = Caller(ann.account_id, "", "", {"X-API-Key": key["api_key"]})
    refused = await api.call("POST", "/api-keys", by_key, json={"name": "more"})
    assert code_of(refused) == (403, "KEY_MAKES_NO_KEYS")
    assert len((await api.get("/api-keys", ann))["api_keys"]) == 1


async def test_a_login_and_a_key_together_open_nothing(api: PlatformApi) -> None:
    ann = await api.account()
    key = await made(api, "/api-keys", ann, name="ci")
    both = await api.call("GET", "/me", ann, headers={"X-API-Key": key["api_key"]})
    assert code_of(both) == (400, "REPEATED_CREDENTIAL")


async def test_a_key_is_shown_once_and_then_by_its_beginning(api: PlatformApi) -> None:
    ann = await api.account()
    key = await made(api, "/api-keys", ann, name="ci")
    shown = await api.get(f"/api-keys/{key['key_id']}", ann)
    assert shown["prefix"] == key["api_key"][:8]
    assert key["api_key"] not in str(await api.get("/api-keys", ann)) + str(shown)


async def test_last_used_is_written_at_most_every_five_minutes(api: PlatformApi) -> None:
    ann = await api.account()
    key = await made(api, "/api-keys", ann, name="ci")
    by_key = Caller(ann.account_id, "", "", {"X-API-Key": key["api_key"]})
    seen = []
    for seconds in (0, 299, 1):
        api.clock.advance(seconds)
        await api.get("/me", by_key)
        seen.append((await api.get(f"/api-keys/{key['key_id']}", ann))["last_used_at"])
    assert seen == ["2027-01-15T08:00:00Z", "2027-01-15T08:00:00Z", "2027-01-15T08:05:00Z"]


async def test_a_crowd_with_one_key_writes_of_its_use_together(api: PlatformApi) -> None:
    ann = await api.account()
    key = await made(api, "/api-keys", ann, name="ci")
    by_key = Caller(ann.account_id, "", "", {"X-API-Key": key["api_key"]})
    await api.get("/me", by_key)
    api.clock.advance(300)
    with counted_statements() as statements:
        await asyncio.gather(*(api.get("/me", by_key) for _ in range(40)))
    assert 1 <= len([each for each in statements if each.startswith("UPDATE")]) <= 4


async def test_key_names_are_unique_among_those_that_are_there(api: PlatformApi) -> None:
    ann, bob = await api.account(), await api.account()
    key = await made(api, "/api-keys", ann, name="ci")
    await made(api, "/api-keys", ann, name="other")
    await made(api, "/api-keys", bob, name="ci")
    taken = await api.call("POST", "/api-keys", ann, json={"name": "ci"})
    assert code_of(taken) == (409, "KEY_NAME_TAKEN")
    path = f"/api-keys/{key['key_id']}"
    renamed = await api.call("PATCH", path, ann, json={"name": "other"})
    assert code_of(renamed) == (409, "KEY_NAME_TAKEN")
    await api.call("DELETE", path, ann)
    await made(api, "/api-keys", ann, name="ci")


async def test_the_default_project_is_always_exactly_one(api: PlatformApi) -> None:
    ann = await api.account()
    [first] = (await api.get("/projects", ann, is_default=True))["projects"]
    assert first["name"] == "Default"
    path = f"/projects/{first['project_id']}"
    for refused in (
        await api.call("POST", f"{path}/archive", ann),
        await api.call("DELETE", path, ann),
    ):
        assert code_of(refused) == (409, "PROJECT_IS_DEFAULT")
    others = [await made(api, "/projects", ann, name=f"p{number}") for number in range(6)]
    await asyncio.gather(
        *(api.post(f"/projects/{each['project_id']}/make-default", ann) for each in others)
    )
    statement = sa.select(sa.func.count()).where(
        projects.c.is_default, projects.c.owner_account_id == ann.account_id
    )
    assert await api.part.database.read(lambda c: c.scalar(statement)) == 1
    assert (await api.call("DELETE", path, ann)).status_code == 204


async def test_an_archived_project_is_read_only_until_it_is_taken_back(api: PlatformApi) -> None:
    ann = await api.account()
    project = await made(api, "/projects", ann, name="one")
    path = f"/projects/{project['project_id']}"
    assert (await api.post(f"{path}/archive", ann))["status"] == "archived"
    assert (await api.post(f"{path}/archive", ann))["status"] == "archived"
    for refused in (
        await api.call("PATCH", path, ann, json={"name": "two"}),
        await api.call("PATCH", path, ann, json={}),
        await api.call("POST", f"{path}/make-default", ann),
    ):
        assert code_of(refused) == (409, "PROJECT_ARCHIVED")
    assert (await api.get(path, ann))["name"] == "one"
    assert await names(api, "/projects", ann, status="archived") == ["one"]
    await api.post(f"{path}/unarchive", ann)
    changed = await api.call("PATCH", path, ann, json={"name": "two", "description": "d\ne"})
    assert changed.json()["description"] == "d\ne"
    changed = await api.call("PATCH", path, ann, json={"description": None})
    assert (changed.json()["name"], changed.json()["description"]) == ("two", None)


async def test_a_project_with_a_sandbox_stays(api: PlatformApi) -> None:
    ann = await api.account()
    project = await made(api, "/projects", ann, name="one")
    [template] = (await api.get("/templates", ann, q="static"))["templates"]
    await api.part.database.write(
        lambda c: c.execute(
            sandboxes.insert().values(
                sandbox_id="sbx-1",
                name="one",
                template_id=template["template_id"],
                owner_account_id=ann.account_id,
                project_id=project["project_id"],
            )
        )
    )
    path = f"/projects/{project['project_id']}"
    assert code_of(await api.call("DELETE", path, ann)) == (409, "PROJECT_IN_USE")
    await api.part.database.write(lambda c: c.execute(sandboxes.update().values(status="recycled")))
    assert (await api.call("DELETE", path, ann)).status_code == 204
    assert code_of(await api.call("GET", path, ann)) == (404, "PROJECT_NOT_FOUND")


async def test_project_names_are_unique_per_account(api: PlatformApi) -> None:
    ann, bob = await api.account(), await api.account()
    await made(api, "/projects", ann, name="one")
    await made(api, "/projects", bob, name="one")
    taken = await api.call("POST", "/projects", ann, json={"name": "one"})
    assert code_of(taken) == (409, "PROJECT_NAME_TAKEN")
    two = await made(api, "/projects", ann, name="two")
    path = f"/projects/{two['project_id']}"
    assert (await api.call("PATCH", path, ann, json={"name": "one"})).status_code == 409
    await api.call("DELETE", path, ann)
    await made(api, "/projects", ann, name="two")


@pytest.mark.parametrize(
    ("path", "extra"), [("/projects", {}), ("/api-keys", {}), ("/templates", TEMPLATE)]
)
async def test_listings_search_sort_and_page(
    api: PlatformApi, path: str, extra: dict[str, Any]
) -> None:
    ann = await api.account()
    for name in ("beta", "Alpha_1", "alpha%2", "gamma"):
        await made(api, path, ann, **(extra | {"name": name}))
        api.clock.advance(1)
    made_here = ["gamma", "alpha%2", "Alpha_1", "beta"]
    only = {"visibility": "private"} if extra else {"q": "a"}
    first = [name for name in await names(api, path, ann, **only) if name != "Default"]
    assert first == made_here
    oldest = await names(api, path, ann, sort="created_at", **only)
    assert [name for name in oldest if name != "Default"] == made_here[::-1]
    by_name = await names(api, path, ann, sort="name", **only)
    assert [name for name in by_name if name != "Default"] == sorted(made_here)
    assert await names(api, path, ann, sort="-name", **only) == by_name[::-1]
    assert await names(api, path, ann, q="ALPHA") == ["alpha%2", "Alpha_1"]
    assert await names(api, path, ann, q="a%") == ["alpha%2"]
    assert await names(api, path, ann, q="a_1") == ["Alpha_1"]
    foreign = (await api.get(path, ann, sort="name", limit=1))["next_cursor"]
    refused = await api.call("GET", path, ann, params={"sort": "-name", "cursor": foreign})
    assert code_of(refused) == (400, "INVALID_CURSOR")


async def test_the_official_templates_are_there_and_stay_deleted(api: PlatformApi) -> None:
    ann, admin = await api.account(), await api.admin()
    shown = (await api.get("/templates", ann, sort="name"))["templates"]
    assert [(each["name"], each["repository_url"]) for each in shown] == [
        (name, f"builtin:{name}") for name in sorted(BUILTIN)
    ]
    assert {each["visibility"] for each in shown} == {"official"}
    path = f"/templates/{shown[0]['template_id']}"
    assert code_of(await api.call("DELETE", path, ann)) == (403, "TEMPLATE_READ_ONLY")
    assert (await api.call("DELETE", path, admin)).status_code == 204
    await api.part.prepare()
    assert await names(api, "/templates", ann, sort="name") == sorted(BUILTIN)[1:]


async def test_who_may_see_and_change_which_template(api: PlatformApi) -> None:
    ann, bob, admin = await api.account(), await api.account(), await api.admin()
    private = await made(api, "/templates", ann, **TEMPLATE)
    public = await made(api, "/templates", ann, **(TEMPLATE | {"name": "p", "is_public": True}))
    refused = await api.call("POST", "/templates", ann, json=TEMPLATE | {"is_official": True})
    assert code_of(refused) == (403, "OFFICIAL_TEMPLATE")
    official = await made(
        api, "/templates", admin, **(TEMPLATE | {"name": "o", "is_official": True})
    )
    statuses: dict[str, list[int]] = {}
    for who, caller in (("bob", bob), ("admin", admin), ("ann", ann)):
        statuses[who] = []
        for template in (private, public, official):
            path = f"/templates/{template['template_id']}"
            for method, body in (("GET", None), ("PATCH", {"language": who}), ("DELETE", None)):
                if method == "DELETE" and (who == "admin" or template is public):
                    continue
                answer = await api.call(method, path, caller, json=body)
                statuses[who].append(answer.status_code)
    assert statuses == {
        "bob": [404, 404, 404, 200, 403, 200, 403, 403],
        "admin": [404, 404, 200, 200, 200, 200],
        "ann": [200, 200, 204, 200, 200, 200, 403, 403],
    }
    shown = (await api.get("/templates", bob, visibility="public"))["templates"]
    assert [(each["name"], each["is_own"]) for each in shown] == [("p", False)]
    assert "account_id" not in str(shown)
    hidden = await api.call(
        "PATCH", f"/templates/{public['template_id']}", ann, json={"is_public": False}
    )
    assert hidden.json()["visibility"] == "private"
    assert await names(api, "/templates", bob, visibility="public") == []


async def test_official_and_own_names_are_unique(api: PlatformApi) -> None:
    ann, bob, admin = await api.account(), await api.account(), await api.admin()
    await made(api, "/templates", ann, **TEMPLATE)
    await made(api, "/templates", bob, **TEMPLATE)
    assert code_of(await api.call("POST", "/templates", ann, json=TEMPLATE)) == (
        *(409, "TEMPLATE_NAME_TAKEN"),
    )
    official = TEMPLATE | {"name": "static", "is_official": True}
    assert (await api.call("POST", "/templates", admin, json=official)).status_code == 409


async def test_templates_are_found_by_tag_category_and_language(api: PlatformApi) -> None:
    ann = await api.account()
    await made(api, "/templates", ann, **TEMPLATE)
    await made(api, "/templates", ann, **(TEMPLATE | {"name": "no tags", "tags": None}))
    assert await names(api, "/templates", ann, tag="b c") == ["mine"]
    assert await names(api, "/templates", ann, tag="b") == []
    assert sorted(await names(api, "/templates", ann, tag="starter")) == sorted(BUILTIN)
    assert await names(api, "/templates", ann, language="html") == ["static"]
    assert sorted(await names(api, "/templates", ann, category="machine")) == sorted(BARE)
    assert await names(api, "/templates", ann, category="web", language="go", tag="a") == ["mine"]
    [row] = await api.part.database.read(
        lambda c: c.execute(
            sa.select(templates.c.template_id).where(templates.c.tags.is_(None))
        ).all()
    )
    assert row


async def test_notifications_come_from_what_happens(api: PlatformApi) -> None:
    ann, bob, admin = await api.account("ann"), await api.account(), await api.admin()
    key = await made(api, "/api-keys", ann, name="ci")
    api.clock.advance(1)
    change = {"current_password": PASSWORD, "new_password": "another password"}
    by_key = Caller(ann.account_id, "", "", {"X-API-Key": key["api_key"]})
    await api.post("/auth/password/change", by_key, change)
    api.clock.advance(1)
    notice = {"title": "Down at noon", "message": "For an hour.", "type": "error"}
    assert await api.post("/admin/notifications", admin, notice) == {"sent": 3}
    shown = (await api.get("/notifications", by_key))["notifications"]
    assert [(each["title"], each["type"], each["is_read"]) for each in shown] == [
        ("Down at noon", "error", False),
        ("Your password was changed", "warning", False),
        ("New API key", "success", False),
    ]
    assert shown[2]["related_entity_id"] == key["key_id"]
    assert await names(api, "/notifications", bob) == ["Down at noon"]
    assert await names(api, "/notifications", by_key, type="warning") == [shown[1]["title"]]
    forbidden = await api.call("POST", "/admin/notifications", bob, json=notice)
    assert code_of(forbidden) == (403, "ADMINS_ONLY")


async def test_notifications_are_read_and_deleted(api: PlatformApi) -> None:
    ann, bob, admin = await api.account(), await api.account(), await api.admin()
    for number in range(3):
        await api.post("/admin/notifications", admin, {"title": f"n{number}", "message": "m\nn"})
        api.clock.advance(1)
    newest, _, oldest = (await api.get("/notifications", ann))["notifications"]
    path = f"/notifications/{newest['notification_id']}"
    assert (await api.post(f"{path}/read", ann))["is_read"] is True
    assert (await api.get(path, ann))["is_read"] is True
    assert await names(api, "/notifications", ann, unread=True) == ["n1", "n0"]
    assert await names(api, "/notifications", ann, unread=False) == ["n2"]
    assert await api.post("/notifications/read-all", ann) == {"read": 2}
    assert await api.post("/notifications/read-all", ann) == {"read": 0}
    gone = f"/notifications/{oldest['notification_id']}"
    assert (await api.call("DELETE", gone, ann)).status_code == 204
    assert code_of(await api.call("DELETE", gone, ann)) == (404, "NOTIFICATION_NOT_FOUND")
    assert await names(api, "/notifications", ann) == ["n2", "n1"]
    assert await names(api, "/notifications", bob, unread=True) == ["n2", "n1", "n0"]


async def test_times_are_of_the_clock(api: PlatformApi) -> None:
    ann = await api.account()
    project = await made(api, "/projects", ann, name="one")
    assert project["created_at"] == "2027-01-15T08:00:00Z"
    assert utc_time(api.clock.now()).isoformat().startswith("2027-01-15T08:00:00")


async def test_sixty_changes_of_a_project_at_once_are_all_made(api: PlatformApi) -> None:
    caller = await api.account()
    project = await made(api, "/projects", caller, name="busy")
    path = f"/projects/{project['project_id']}"
    patches = (api.call("PATCH", path, caller, json={"description": f"{n}"}) for n in range(60))
    answers = await asyncio.gather(*patches)
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["description"] for answer in answers} == {f"{n}" for n in range(60)}
