"""Who did what to a sandbox is told by its events: by login, by key, or by nobody's deed."""

from sandyard.kit.changes.events import Event, EventQuery
from sandyard.platform.events.entities import platform_events
from tests.contract.platform.access.test_isolation import key_of
from tests.support.platform.in_process import PlatformApi
from tests.support.platform.sandboxes import add_sandbox


async def events_of(api: PlatformApi, subject: str) -> dict[str, Event]:
    log = platform_events(api.part.database)
    page = await log.page(EventQuery(subject=subject), limit=50, cursor=None)
    return {each.event.kind: each.event for each in page.items}


async def test_a_login_and_a_key_are_told_apart(api: PlatformApi) -> None:
    ann = await api.account()
    with_key = await key_of(api, ann)
    [key] = (await api.get("/api-keys", ann))["api_keys"]
    sandbox = await add_sandbox(api, ann)
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    api.clock.advance(1)
    assert (await api.call("PATCH", path, with_key, json={"name": "other"})).is_success
    api.clock.advance(1)
    assert (await api.call("DELETE", path, ann)).is_success
    events = await events_of(api, sandbox["sandbox_id"])
    account, by_key = f"account:{ann.account_id}", f"key:{key['key_id']}"
    assert {kind: event.actor for kind, event in events.items()} == {
        "sandbox.created": account,
        "sandbox.updated": by_key,
        "sandbox.recycled": account,
    }
    assert {event.account_id for event in events.values()} == {ann.account_id}
    updated = events["sandbox.updated"]
    assert updated.data["name"] == "other"
    assert set(updated.data) == {"name", "updated_at"}
    assert [event.sequence for event in sorted(events.values(), key=lambda e: e.at_ms)] == [1, 2, 3]


async def test_what_changes_nothing_is_no_event(api: PlatformApi) -> None:
    ann = await api.account()
    sandbox = await add_sandbox(api, ann, name="mine")
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    for body in ({}, {"name": "mine"}):
        answer = await api.call("PATCH", path, ann, json=body)
        assert answer.json() == sandbox
    assert (await api.call("POST", f"{path}/stop", ann)).json() == sandbox
    assert set(await events_of(api, sandbox["sandbox_id"])) == {"sandbox.created"}
