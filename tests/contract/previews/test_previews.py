"""Status and sync: a new sandbox only when the last has really ended."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.previews.jobs import EndReport
from tests.support.e2b.double import E2bDouble
from tests.support.platform.in_process import code_of
from tests.support.previews.in_process import PreviewApi, minutes, preview_api

STALE = ("running", True, "none")
UNKNOWN = ("unknown", False, "retry_later")
EXPIRED = ("expired", False, "sync_needed")
RUNNING = ("running", False, "none")

TROUBLE = ["rate_limited", "hang", "drop", "error", "unavailable", "unauthorized", "nonsense"]


def told(answer: dict[str, Any]) -> tuple[str, bool, str]:
    assert answer["success"] is True
    assert answer["message"]
    return answer["status"], answer["stale"], answer["action_required"]


@pytest.mark.parametrize("age", ["fresh", "old"])
@pytest.mark.parametrize(
    "case", ["no_info", "past_end", "running", "gone", *TROUBLE, "connection_refused"]
)
async def test_the_decision_table(api: PreviewApi, double: E2bDouble, case: str, age: str) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    if case == "no_info":
        assert told(await api.status(caller, project)) == ("not_found", False, "sync_needed")
        return
    await api.sync(caller, project)
    assert told(await api.status(caller, project)) == RUNNING
    api.clock.advance(minutes(2 if age == "fresh" else 6))
    double.reset_counts()
    match case:
        case "past_end":
            api.clock.advance(minutes(40))
            assert told(await api.status(caller, project)) == EXPIRED
            assert double.calls["get"] == 0, "nobody has to be asked"
        case "running":
            answer = await api.status(caller, project)
            assert told(answer) == RUNNING
            info = answer["sandbox_info"]
            assert info["sandbox_id"] == double.boxes[0].sandbox_id
            assert 0 < info["remaining_time_minutes"] <= 30
        case "gone":
            double.end(double.boxes[0].sandbox_id)
            assert told(await api.status(caller, project)) == EXPIRED
        case "connection_refused":
            await double.stop()
            answer = await api.status(caller, project)
            assert told(answer) == (STALE if age == "fresh" else UNKNOWN)
        case trouble:
            double.inject(trouble)
            answer = await api.status(caller, project)
            assert told(answer) == (STALE if age == "fresh" else UNKNOWN)
            refused = await api.call("POST", f"/projects/{project}/sync", caller)
            assert refused.status_code == 503, "trouble makes no second sandbox"
            double.calm()
            assert told(await api.status(caller, project)) == RUNNING
            assert len(double.boxes) == 1


async def test_a_hundred_syncs_over_two_replicas_make_one_sandbox(
    database_url: str | None, tmp_path: Path, double: E2bDouble
) -> None:
    if database_url is None:
        await _one_replica(tmp_path, double)
        return
    async with (
        preview_api(database_url, tmp_path, double) as one,
        preview_api(database_url, tmp_path, double) as two,
    ):
        caller = await one.account()
        project = await one.project(caller, **{"index.html": "hello", "a/b.css": "p {}"})
        answers = await asyncio.gather(
            *(api.sync(caller, project) for api in (one, two) for _ in range(50))
        )
    _all_the_same(answers, double)


async def _one_replica(tmp_path: Path, double: E2bDouble) -> None:
    async with preview_api(None, tmp_path, double) as api:
        caller = await api.account()
        project = await api.project(caller, **{"index.html": "hello", "a/b.css": "p {}"})
        answers = await asyncio.gather(*(api.sync(caller, project) for _ in range(100)))
    _all_the_same(answers, double)


def _all_the_same(answers: list[dict[str, Any]], double: E2bDouble) -> None:
    assert len(answers) == 100
    outcomes = {answer["data"].pop("outcome") for answer in answers}
    assert outcomes <= {"created", "updated", "unchanged"}, "updated, where it was adopted"
    assert all(answer["data"] == answers[0]["data"] for answer in answers)
    data = answers[0]["data"]
    assert (data["filesCount"], data["version"]) == (2, 1)
    [box] = double.boxes
    assert data["sandbox_info"]["sandbox_id"] == box.sandbox_id
    assert double.calls["create"] == 1


async def test_the_provider_is_away_for_six_minutes(api: PreviewApi, double: E2bDouble) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    await api.sync(caller, project)
    double.inject("unavailable")
    for minute in range(1, 5):
        api.clock.advance(minutes(1))
        assert told(await api.status(caller, project)) == STALE, minute
    api.clock.advance(minutes(1))
    assert told(await api.status(caller, project)) == UNKNOWN
    api.clock.advance(minutes(1))
    assert told(await api.status(caller, project)) == UNKNOWN
    double.calm()
    assert told(await api.status(caller, project)) == RUNNING
    await api.sync(caller, project)
    assert double.calls["create"] == 1


async def test_edited_files_arrive_in_the_running_sandbox(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    files = {"index.html": "one", "style.css": "p {}", "img/a.svg": "<svg/>"}
    project = await api.project(caller, **files)
    first = await api.sync(caller, project)
    version = await api.put_files(caller, project, {"index.html": "two"}, "style.css")
    assert version == 2
    second = await api.sync(caller, project)
    assert second["data"]["sandbox_info"] == first["data"]["sandbox_info"]
    assert (second["data"]["version"], second["data"]["filesCount"]) == (2, 2)
    [box] = double.boxes
    stored = {path.removeprefix("/home/user/preview/"): text for path, text in box.files.items()}
    assert stored == {"index.html": b"two", "img/a.svg": b"<svg/>"}
    assert double.calls["create"] == 1
    assert await api.put_files(caller, project, {"index.html": "two"}) == 2, "nothing is different"


async def test_a_sync_says_what_it_did_and_whether_the_sandbox_was_running(
    api: PreviewApi,
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "one"})
    steps: list[tuple[dict[str, str], tuple[str, ...], str]] = [
        ({}, (), "created"),
        ({}, (), "unchanged"),
        ({"index.html": "two"}, (), "updated"),
        ({"Procfile": "web: true\n"}, (), "restarted"),
        ({"package.json": "{}", "Procfile": "web: false\n"}, (), "installed"),
        ({"package-lock.json": "{}"}, (), "installed"),
        ({"src/package.json": "{}"}, (), "updated"),
        ({}, ("package.json",), "installed"),
        ({}, ("Procfile",), "restarted"),
    ]
    for written, deleted, outcome in steps:
        if written or deleted:
            await api.put_files(caller, project, written, *deleted)
        synced = await api.sync(caller, project)
        assert synced["data"]["outcome"] == outcome, (written, deleted)
        is_first = outcome == "created"
        running = "The preview is running." if is_first else "The sandbox was already running."
        assert synced["message"] == running
    assert await api.get("/usage", caller) == {"usage": [], "next_cursor": None}, "not billed"


async def test_a_new_sandbox_is_made_when_the_last_has_ended(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    first = await api.sync(caller, project)
    double.end(first["data"]["sandbox_info"]["sandbox_id"])
    second = await api.sync(caller, project)
    ids = {each["data"]["sandbox_info"]["sandbox_id"] for each in (first, second)}
    assert len(ids) == 2
    assert len(double.boxes) == 1


@pytest.mark.parametrize("kind", ["drop_after", "hang_after"])
async def test_a_sandbox_whose_making_was_not_answered_is_found_again(
    api: PreviewApi, double: E2bDouble, kind: str
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    double.inject(kind, "create", times=1)
    lost = await api.call("POST", f"/projects/{project}/sync", caller)
    assert lost.status_code == 503
    assert len(double.boxes) == 1
    synced = await api.sync(caller, project)
    assert synced["data"]["sandbox_info"]["sandbox_id"] == double.boxes[0].sandbox_id
    assert len(double.boxes) == 1
    assert double.calls["create"] == 1
    assert b"hello" in double.boxes[0].files.values()


async def test_an_attempt_that_made_nothing_runs_out(
    database_url: str | None, tmp_path: Path, double: E2bDouble
) -> None:
    async with preview_api(database_url, tmp_path, double, attempt_sec=1) as api:
        caller = await api.account()
        project = await api.project(caller, **{"index.html": "hello"})
        double.inject("drop", "create", times=1)
        assert (await api.call("POST", f"/projects/{project}/sync", caller)).status_code == 503
        await api.sync(caller, project)
        assert len(double.boxes) == 1


async def test_a_refusal_that_is_certain_holds_nobody_up(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    double.inject("rate_limited", "create", times=1, retry_after=1)
    refused = await api.call("POST", f"/projects/{project}/sync", caller)
    assert code_of(refused) == (503, "PREVIEW_PROVIDER_RATE_LIMITED")
    async with asyncio.timeout(20):
        await api.sync(caller, project)


async def test_a_refusal_after_the_making_is_none_of_the_making(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    double.inject("rate_limited", "upload", times=3)
    refused = await api.call("POST", f"/projects/{project}/sync", caller)
    assert code_of(refused) == (503, "PREVIEW_PROVIDER_RATE_LIMITED")
    await api.sync(caller, project)
    assert double.calls["create"] == len(double.boxes) == 1


async def test_after_a_making_that_broke_off_nobody_waits_for_the_whole_time(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    double.inject("error", "create", times=1)
    failed = await api.call("POST", f"/projects/{project}/sync", caller)
    assert code_of(failed) == (503, "PREVIEW_PROVIDER_FAILED")
    api.clock.advance(31)
    async with asyncio.timeout(10):
        await api.sync(caller, project)
    assert len(double.boxes) == 1


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("rate_limited", "PREVIEW_PROVIDER_RATE_LIMITED"),
        ("error", "PREVIEW_PROVIDER_FAILED"),
        ("unauthorized", "PREVIEW_PROVIDER_KEY_REFUSED"),
        ("drop", "PREVIEW_PROVIDER_UNREACHABLE"),
    ],
)
async def test_a_sync_in_trouble_tells_which(
    api: PreviewApi, double: E2bDouble, kind: str, code: str
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    await api.sync(caller, project)
    double.inject(kind, "get", retry_after=7 if kind == "rate_limited" else None)
    refused = await api.call("POST", f"/projects/{project}/sync", caller)
    assert code_of(refused) == (503, code)
    if kind == "rate_limited":
        assert refused.headers["Retry-After"] == "7"
    assert len(double.boxes) == 1


async def test_one_that_can_not_be_ended_does_not_keep_the_others(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    for number in range(3):
        project = await api.project(caller, **{"index.html": str(number)})
        await api.sync(caller, project)
        await api.call("DELETE", f"/projects/{project}", caller)
    double.inject("unauthorized", "delete", times=1)
    [job] = [job for job in api.previews.schedule if job.name == "end-previews"]
    assert await api.previews.runner.run(job) == EndReport(ended=2, removed=2, failed=1)
    assert len(double.boxes) == 1
    assert await api.previews.runner.run(job) == EndReport(ended=1, removed=1)
    assert double.boxes == []


async def test_another_accounts_project_is_not_found(api: PreviewApi) -> None:
    caller, other = await api.account(), await api.account()
    project = await api.project(caller, **{"index.html": "hers"})
    for method, path, body in (
        ("GET", "sandbox/status", None),
        ("POST", "sync", None),
        ("GET", "files", None),
        ("PUT", "files", {"files": [{"path": "a", "content": "b"}]}),
    ):
        answer = await api.call(method, f"/projects/{project}/{path}", other, json=body)
        assert code_of(answer) == (404, "PREVIEW_PROJECT_NOT_FOUND")


async def test_an_archived_project_is_read_only(api: PreviewApi) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "x"})
    await api.post(f"/projects/{project}/archive", caller)
    assert told(await api.status(caller, project))[0] == "not_found"
    for method, path, body in (
        ("POST", "sync", None),
        ("PUT", "files", {"files": [{"path": "a", "content": "b"}]}),
    ):
        answer = await api.call(method, f"/projects/{project}/{path}", caller, json=body)
        assert code_of(answer) == (409, "PREVIEW_PROJECT_ARCHIVED")


async def test_at_most_one_question_per_project_is_under_way(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "x"})
    await api.sync(caller, project)
    double.reset_counts()
    double.inject("slow", "get", seconds=0.3)
    await asyncio.gather(*(api.status(caller, project) for _ in range(50)))
    [box] = double.boxes
    assert double.most_in_flight[box.sandbox_id] == 1


async def test_a_sandbox_that_only_the_old_columns_tell_of_is_asked_for(
    old_columns: None, api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    made = await api.sync(caller, project)
    forget = sa.text("UPDATE previews.previews SET sandbox_info = NULL, running_until = NULL")
    await api.previews.database.write(lambda connection: connection.execute(forget))
    age = sa.text("UPDATE previews.previews SET created_at = '2020-01-01T00:00:00.000000Z'")
    await api.previews.database.write(lambda connection: connection.execute(age))
    double.inject("unavailable")
    assert told(await api.status(caller, project)) == UNKNOWN
    double.calm()
    assert told(await api.status(caller, project)) == RUNNING
    synced = await api.sync(caller, project)
    assert synced["data"]["sandbox_info"]["sandbox_id"] == double.boxes[0].sandbox_id
    assert synced["data"]["sandbox_info"]["end_time"] == made["data"]["sandbox_info"]["end_time"]
    assert double.calls["create"] == 1
