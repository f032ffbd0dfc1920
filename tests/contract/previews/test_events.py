"""What happened to previews is listed with all else of an account, page by page."""

from typing import Any

import pytest

from tests.support.platform.in_process import Caller, code_of
from tests.support.previews.in_process import PreviewApi

PREVIEW = ["files.changed", "preview.requested", "preview.created"]


async def listed(
    api: PreviewApi, caller: Caller, path: str = "/events", **only: Any
) -> list[dict[str, Any]]:
    """All pages, the newest first; something happens between any two of them."""
    page = await api.get(path, caller, **only)
    events: list[dict[str, Any]] = page["events"]
    while page["next_cursor"] is not None:
        await api.project(caller, later="x")
        page = await api.get(path, caller, **only, cursor=page["next_cursor"])
        events += page["events"]
    return events


async def test_the_events_of_both_parts_are_one_listing(api: PreviewApi) -> None:
    caller, other = await api.account(), await api.account()
    projects = [await api.project(caller, **{"index.html": str(n)}) for n in range(3)]
    for project in projects:
        api.clock.advance(1)
        await api.sync(caller, project)
    whole = await api.get("/events", caller, limit=100)
    assert whole["next_cursor"] is None
    events = whole["events"]
    ids = [each["event_id"] for each in events]
    assert ids == sorted(set(ids), reverse=True)
    assert {each["part"] for each in events} == {"platform", "previews"}
    for limit in (1, 2, 5, len(ids)):
        paged = await listed(api, caller, limit=limit, to="2999-01-01T00:00:00Z")
        assert [each["event_id"] for each in paged if each["event_id"] in ids] == ids
        assert len({each["event_id"] for each in paged}) == len(paged)
    assert {each["part"] for each in await listed(api, other)} == {"platform"}


async def test_a_project_s_events_are_those_of_its_preview_too(api: PreviewApi) -> None:
    caller, admin = await api.account(), await api.admin()
    project = await api.project(caller, **{"index.html": "x"})
    await api.sync(caller, project)
    for who, path in ((caller, "/events"), (admin, "/admin/events")):
        events = await listed(api, who, path, subject=project, limit=1)
        kinds = [each["kind"] for each in reversed(events)]
        assert kinds == ["project.created", *PREVIEW]
    page = await api.get(
        "/admin/events", admin, account_id=caller.account_id, kind="preview.created"
    )
    assert [each["subject"] for each in page["events"]] == [project]


@pytest.mark.parametrize("subject", [None, "the project"])
async def test_a_cursor_of_another_listing_is_refused(api: PreviewApi, subject: str | None) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "x"})
    only = {} if subject is None else {"subject": project}
    cursor = (await api.get("/events", caller, limit=1, **only))["next_cursor"]
    assert cursor is not None
    for wrong in ({"kind": "files.changed"}, {} if only else {"subject": project}):
        params = {"cursor": cursor, **wrong}
        answer = await api.call("GET", "/events", caller, params=params)
        assert code_of(answer) == (400, "INVALID_CURSOR")
    history = (await api.get(f"/projects/{project}/sandbox/history", caller))["events"]
    assert [each["kind"] for each in history] == ["files.changed"]
