"""A preview's history: who did what, whom it is shown to, and how long."""

from typing import Any

from sandyard.kit.changes.events import EventQuery, PruneReport
from tests.support.e2b.double import E2bDouble
from tests.support.platform.in_process import Caller, code_of
from tests.support.previews.in_process import PreviewApi, minutes


async def history(api: PreviewApi, caller: Caller, project: str, **query: Any) -> dict[str, Any]:
    answer = await api.call(
        "GET", f"/projects/{project}/sandbox/history", caller, params=query or None
    )
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def kinds(api: PreviewApi, caller: Caller, project: str) -> list[str]:
    """The oldest first."""
    return [each["kind"] for each in (await history(api, caller, project))["events"]][::-1]


async def run_job(api: PreviewApi, name: str) -> Any:
    [job] = [job for job in api.previews.schedule if job.name == name]
    return await api.previews.runner.run(job)


async def test_a_life_from_the_first_file_to_the_end(api: PreviewApi, double: E2bDouble) -> None:
    caller = await api.account()
    project = await api.project(caller)
    assert await kinds(api, caller, project) == []
    await api.put_files(caller, project, {"index.html": "never in an event"})
    await api.sync(caller, project)
    await api.put_files(caller, project, {"index.html": "nor is this"})
    await api.sync(caller, project)
    for _ in range(3):
        api.clock.advance(minutes(1))
        await api.status(caller, project)
    double.end(double.boxes[0].sandbox_id)
    await api.status(caller, project)
    assert await kinds(api, caller, project) == [
        "files.changed",
        "preview.requested",
        "preview.created",
        "files.changed",
        "preview.synced",
        "preview.ended",
    ]
    page = await history(api, caller, project)
    actors = [each["actor"] for each in page["events"]]
    assert actors == ["system"] + 5 * [f"account:{caller.account_id}"]
    sequences = [each["sequence"] for each in page["events"]]
    assert sequences == list(range(sequences[0], sequences[0] - 6, -1))
    assert {each["subject"] for each in page["events"]} == {project}
    assert page["events"][-1]["data"]["written"] == 1
    assert "never in" not in str(page)


async def test_a_refused_attempt_says_why(api: PreviewApi, double: E2bDouble) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "x"})
    for trouble, kind, reason in (
        ("rate_limited", "preview.abandoned", "PREVIEW_PROVIDER_RATE_LIMITED"),
        ("error", "preview.attempt_shortened", "PREVIEW_PROVIDER_FAILED"),
    ):
        double.inject(trouble, "create", times=1)
        assert (await api.call("POST", f"/projects/{project}/sync", caller)).status_code == 503
        newest = (await history(api, caller, project, limit=1))["events"][0]
        assert (newest["kind"], newest["reason"]) == (kind, reason)


async def test_it_is_the_owners_alone_also_after_the_project_is_deleted(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller, other = await api.account(), await api.account()
    project = await api.project(caller, **{"index.html": "x"})
    await api.sync(caller, project)
    assert (await api.call("DELETE", f"/projects/{project}", caller)).status_code == 204
    await run_job(api, "end-previews")
    assert double.boxes == []
    page = await history(api, caller, project, limit=1)
    [newest] = page["events"]
    assert (newest["kind"], newest["actor"]) == ("preview.removed", "job:end-previews")
    rest = await history(api, caller, project, cursor=page["next_cursor"])
    assert [each["kind"] for each in rest["events"]] == [
        "preview.created",
        "preview.requested",
        "files.changed",
    ]
    path = f"/projects/{project}/sandbox/history"
    refused = await api.call("GET", path, other)
    assert code_of(refused) == (404, "PREVIEW_PROJECT_NOT_FOUND")
    unknown = await api.call("GET", "/projects/prj-unknown/sandbox/history", caller)
    assert code_of(unknown) == (404, "PREVIEW_PROJECT_NOT_FOUND")


async def test_an_api_key_is_named_as_the_actor(api: PreviewApi) -> None:
    caller = await api.account()
    project = await api.project(caller)
    key = await api.post("/api-keys", caller, {"name": "ci"})
    answer = await api.client.put(
        f"/api/v1/projects/{project}/files",
        headers={"X-API-Key": key["api_key"]},
        json={"files": [{"path": "a", "content": "b"}]},
    )
    assert answer.status_code == 200
    [event] = (await history(api, caller, project))["events"]
    assert event["actor"] == f"key:{key['key_id']}"


async def test_events_are_pruned_but_those_that_a_preview_rests_on(api: PreviewApi) -> None:
    caller = await api.account()
    deleted, kept = [await api.project(caller, **{"index.html": str(n)}) for n in range(2)]
    assert (await api.call("DELETE", f"/projects/{deleted}", caller)).status_code == 204
    await run_job(api, "deleted-projects")
    api.clock.advance(minutes(91 * 24 * 60))
    assert await run_job(api, "previews-events") == PruneReport(events_removed=2)
    page = await api.previews.log.page(EventQuery(), limit=9, cursor=None)
    assert [each.event.subject for each in page.items] == [kept]
