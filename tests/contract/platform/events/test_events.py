"""What happened, as accounts and admins may read it, on both engines."""

from typing import Any

import sqlalchemy as sa

from sandyard.kit.changes.transitions import Cause, stateless_event
from sandyard.platform.events.entities import platform_transitions
from sandyard.platform.events.verification import verify_platform
from sandyard.platform.schema.tables import events, sandboxes
from sandyard.platform.templates.model import BUILTIN
from tests.contract.platform.access.test_isolation import TEMPLATE, key_of
from tests.support.platform.in_process import PASSWORD, Caller, PlatformApi, code_of
from tests.support.platform.sandboxes import add_sandbox

SANDBOX = "sbx-" + "a" * 17
NEW_PASSWORD = "another good password"
DAY = 86400


async def kinds(api: PlatformApi, caller: Caller, **only: Any) -> list[str]:
    """The newest last."""
    page = await api.get("/events", caller, **only)
    return [each["kind"] for each in page["events"]][::-1]


async def happens(api: PlatformApi, kind: str, subject: str, caller: Caller) -> None:
    cause = Cause("job:test", round(api.clock.now() * 1000))
    event = stateless_event(subject, kind, cause, account_id=caller.account_id)
    assert await platform_transitions(api.part.database).apply(extra_events=[event])


async def test_an_account_reads_what_happened_to_its_things_and_who_did_it(
    api: PlatformApi,
) -> None:
    ann = await api.account()
    by_key = await key_of(api, ann)
    api.clock.advance(1)
    project = await api.post("/projects", by_key, {"name": "one"})
    path = f"/projects/{project['project_id']}"
    await api.call("PATCH", path, ann, json={"name": "two"})
    assert (await api.call("DELETE", path, ann)).status_code == 204
    page = await api.get("/events", ann, subject=project["project_id"])
    deleted, renamed, made = page["events"]
    [key] = (await api.get("/api-keys", ann))["api_keys"]
    assert [made["actor"], renamed["actor"]] == [
        f"key:{key['key_id']}",
        f"account:{ann.account_id}",
    ]
    assert [each["kind"] for each in (made, renamed, deleted)] == [
        *("project.created", "project.updated", "project.deleted"),
    ]
    assert [each["sequence"] for each in (made, renamed, deleted)] == [1, 2, 3]
    assert made["data"]["name"] == "one"
    assert renamed["data"]["name"] == "two"
    assert made["at"] == "2027-01-15T08:00:01Z"
    assert made["part"] == "platform"


async def test_events_are_filtered_and_paged(api: PlatformApi) -> None:
    ann = await api.account()
    for name in ("one", "two", "three"):
        api.clock.advance(60)
        await api.post("/projects", ann, {"name": name})
    assert await kinds(api, ann, kind="project.created") == ["project.created"] * 4
    assert len(await kinds(api, ann, actor=f"account:{ann.account_id}")) == 3
    since = {"from": "2027-01-15T08:02:00Z"}
    assert len(await kinds(api, ann, **since)) == 2
    assert len(await kinds(api, ann, **since, to="2027-01-15T08:03:00Z")) == 1
    first = await api.get("/events", ann, limit=4)
    rest = await api.get("/events", ann, limit=4, cursor=first["next_cursor"])
    ids = [each["event_id"] for each in first["events"] + rest["events"]]
    assert ids == sorted(set(ids), reverse=True)
    assert (len(ids), rest["next_cursor"]) == (5, None)
    at = "2027-01-15T08:00:00Z"
    assert await kinds(api, ann, **{"from": at, "to": at}) == []
    for wrong in (
        {"from": "0.5"},
        {"to": at[:-1]},
        {"subject": "\0"},
        {"limit": "0"},
        {"cursor": "x"},
    ):
        assert (await api.call("GET", "/events", ann, params=wrong)).status_code == 400


async def test_anothers_events_are_never_seen(api: PlatformApi) -> None:
    ann, bob, admin = await api.account(), await api.account(), await api.admin()
    project = await api.post("/projects", ann, {"name": "secret name"})
    await happens(api, "sandbox.started", SANDBOX, ann)
    for caller in (bob, await key_of(api, bob), admin):
        for only in (
            {},
            {"subject": project["project_id"]},
            {"actor": f"account:{ann.account_id}"},
        ):
            assert "secret name" not in str(await api.get("/events", caller, **only))
            assert ann.account_id not in str(await api.get("/events", caller, **only))
        answer = await api.call("GET", f"/sandboxes/{SANDBOX}/history", caller)
        assert answer.status_code == 404
    cursor = (await api.get("/events", ann, limit=1))["next_cursor"]
    stolen = await api.call("GET", "/events", bob, params={"limit": 1, "cursor": cursor})
    assert code_of(stolen) == (400, "INVALID_CURSOR")


async def test_admins_read_the_events_of_all_accounts(api: PlatformApi) -> None:
    ann, admin = await api.account(), await api.admin()
    await api.post("/projects", ann, {"name": "one"})
    body = {"email": "x@example.com", "username": "Xan", "password": PASSWORD}
    await api.post("/auth/signup", None, body)
    of_ann = await api.get("/admin/events", admin, account_id=ann.account_id)
    assert {each["kind"] for each in of_ann["events"]} == {"account.created", "project.created"}
    everything = await api.get("/admin/events", admin, limit=100)
    assert {"signup.created", "template.created"} <= {each["kind"] for each in everything["events"]}
    refused = await api.call("GET", "/admin/events", ann)
    assert code_of(refused) == (403, "ADMINS_ONLY")
    wrong = await api.call("GET", "/admin/events", admin, params={"account_id": "x"})
    assert wrong.status_code == 400


async def test_the_history_of_a_sandbox_is_its_owners_also_when_it_is_gone(
    api: PlatformApi,
) -> None:
    ann = await api.account()
    for unknown in (SANDBOX, "x"):
        answer = await api.call("GET", f"/sandboxes/{unknown}/history", ann)
        assert code_of(answer) == (404, "SANDBOX_UNKNOWN")
    path = f"/sandboxes/{(await add_sandbox(api, ann))['sandbox_id']}"
    api.clock.advance(1)
    await api.call("PATCH", path, ann, json={"description": "d"})
    api.clock.advance(1)
    assert (await api.call("DELETE", path, await key_of(api, ann))).status_code == 200
    page = await api.get(f"{path}/history", ann, limit=2)
    recycled, changed = page["events"]
    assert recycled["data"]["status"] == "recycled"
    assert recycled["actor"].startswith("key:")
    assert changed["data"]["description"] == "d"
    rest = await api.get(f"{path}/history", ann, limit=2, cursor=page["next_cursor"])
    [made] = rest["events"]
    assert (made["kind"], made["sequence"]) == ("sandbox.created", 1)
    assert rest["next_cursor"] is None
    assert (await verify_platform(api.part.database)).problems == []


async def test_logins_are_events_of_the_account_that_is_meant(api: PlatformApi) -> None:
    ann = await api.account("Ann")
    for login, password in (("ann", "wrong password"), ("nobody", "x"), ("ann", PASSWORD)):
        await api.call("POST", "/auth/login", json={"login": login, "password": password})
        await api.part.background.finish(within_sec=60)
        api.clock.advance(1)
    page = await api.get("/events", ann)
    succeeded, failed = page["events"][:2]
    assert (failed["kind"], failed["actor"]) == ("login.failed", "anonymous")
    assert failed["reason"] == "wrong password"
    assert failed["sequence"] is None
    assert (succeeded["kind"], succeeded["actor"]) == (
        *("login.succeeded", f"account:{ann.account_id}"),
    )
    all_of_them = await api.get("/admin/events", await api.admin(), kind="login.failed")
    assert len(all_of_them["events"]) == 1, "a login that no account has is no event"


async def test_no_event_holds_a_secret(api: PlatformApi) -> None:
    """Passwords, tokens, keys and their hashes, after all that makes one was done."""
    secrets = [PASSWORD, NEW_PASSWORD, "a third password"]
    body = {"email": "ann@example.com", "username": "Ann", "password": PASSWORD}
    await api.post("/auth/signup", None, body)
    secrets.append(await api.last_token())
    await api.post("/auth/resend", None, {"email": body["email"]})
    secrets.append(await api.last_token())
    await api.post("/auth/verify", None, {"token": secrets[-1]})
    login = await api.post("/auth/login", None, {"login": "ann", "password": PASSWORD})
    secrets.append(login["access_token"])
    ann = Caller("", "", "", {"Authorization": f"Bearer {login['access_token']}"})
    key = await api.post("/api-keys", ann, {"name": "ci"})
    secrets.append(key["api_key"])
    by_key = Caller("", "", "", {"X-API-Key": key["api_key"]})
    changed = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    await api.post("/auth/password/change", ann, changed)
    await api.post("/auth/password/forgot", None, {"email": body["email"]})
    secrets.append(await api.last_token())
    reset = {"token": secrets[-1], "password": secrets[2]}
    await api.post("/auth/password/reset", None, reset)
    await api.post("/auth/login", None, {"login": "ann", "password": secrets[2]})
    assert (await api.call("DELETE", f"/api-keys/{key['key_id']}", by_key)).status_code == 204
    kept = await rows(api)
    seen = {row.kind for row in kept}
    assert {
        *("signup.created", "signup.renewed", "signup.verified", "account.created"),
        *("key.created", "key.revoked", "password.changed", "password.reset_requested"),
        *("password.reset", "login.succeeded", "notification.created"),
    } <= seen
    text = "\n".join(f"{row.data} {row.reason} {row.actor} {row.subject}" for row in kept)
    secrets += await stored_secrets(api)
    assert len(secrets) >= 10
    for secret in secrets:
        assert secret not in text


async def rows(api: PlatformApi) -> list[Any]:
    statement = sa.select(events)
    found = await api.part.database.read(lambda connection: connection.execute(statement).all())
    return list(found)


async def stored_secrets(api: PlatformApi) -> list[str]:
    """The hashes that the tables hold."""
    statement = sa.text("SELECT password_hash FROM platform.users")
    keys = sa.text("SELECT key_hash FROM platform.api_keys")

    def work(connection: sa.Connection) -> list[str]:
        return [*connection.scalars(statement), *connection.scalars(keys)]

    return await api.part.database.read(work)


async def test_old_events_are_pruned_and_no_state_with_them(api: PlatformApi) -> None:
    ann = await api.account()
    project = await api.post("/projects", ann, {"name": "one"})
    template = await api.post("/templates", ann, TEMPLATE)
    await happens(api, "sandbox.started", SANDBOX, ann)
    body = {"email": "x@example.com", "username": "Xan", "password": PASSWORD}
    await api.post("/auth/signup", None, body)
    [prune] = [job for job in api.part.schedule if job.name == "platform-events"]
    [signups] = [job for job in api.part.schedule if job.name == "signups"]
    assert (await api.part.runner.run(prune)).events_removed == 0
    api.clock.advance(DAY)
    assert (await api.part.runner.run(signups)).signups_removed == 1
    api.clock.advance(90 * DAY + 1)
    assert (await api.part.runner.run(prune)).events_removed == 3, "of sandbox and sign-up"
    left = {row.subject for row in await rows(api)}
    assert {project["project_id"], template["template_id"]} <= left
    report = await verify_platform(api.part.database)
    assert report.problems == []
    assert report.subjects == 4 + len(BUILTIN), "the account, two projects, and the templates"


async def test_a_row_that_was_changed_without_an_event_is_found(api: PlatformApi) -> None:
    ann = await api.account()
    sandbox_id = (await add_sandbox(api, ann))["sandbox_id"]
    forged = sandboxes.update().where(sandboxes.c.sandbox_id == sandbox_id).values(name="forged")
    await api.part.database.write(lambda connection: connection.execute(forged))
    [problem] = (await verify_platform(api.part.database)).problems
    assert problem.subject == sandbox_id
    assert "name" in problem.message


async def test_a_filter_names_a_kind_or_the_beginning_of_some(api: PlatformApi) -> None:
    admin = await api.admin()
    found = await api.get("/admin/events", admin, kind="account.*")
    assert {each["kind"].partition(".")[0] for each in found["events"]} == {"account"}
    refused = await api.call("GET", "/admin/events", admin, params={"kind": "login.succeed"})
    assert code_of(refused) == (400, "UNKNOWN_EVENT_KIND")
    assert "`login.succeeded`" in refused.json()["error"]["message"]
