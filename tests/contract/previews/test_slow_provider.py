"""A provider that takes its time does not keep a status waiting if its last answer is fresh."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.previews.status_checks import ANSWER_WITHIN_SEC
from sandyard.previews.status_model import RETRY_AFTER_SEC
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.runtime.e2b.control import E2bTimeouts
from tests.support.e2b.double import E2bDouble
from tests.support.previews.in_process import PreviewApi, minutes, preview_api
from tests.support.previews.providers import connect_to

LONG = E2bTimeouts(request_sec=150)
SOON_SEC = 60
"""Far less than the provider may take; more than `ANSWER_WITHIN_SEC`, for a busy machine."""


@pytest.fixture
async def api(
    database_url: str | None, tmp_path: Path, double: E2bDouble
) -> AsyncIterator[PreviewApi]:
    provider = connect_to(double, timeouts=LONG)
    async with preview_api(
        database_url,
        tmp_path,
        double,
        provider=provider,
        answer_within_sec=ANSWER_WITHIN_SEC,
    ) as api:
        yield api


async def test_while_it_hangs_the_last_answer_is_told_marked_stale(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    made = await api.sync(caller, project)
    double.inject("hang", "get")
    api.clock.advance(minutes(1))
    assert ANSWER_WITHIN_SEC < 1
    async with asyncio.timeout(SOON_SEC):
        answers = await asyncio.gather(*(api.status(caller, project) for _ in range(3)))
    for answer in answers:
        assert (answer["status"], answer["stale"]) == ("running", True)
        known = answer["sandbox_info"]
        assert known["sandbox_id"] == made["data"]["sandbox_info"]["sandbox_id"]
        assert known["end_time"] == made["data"]["sandbox_info"]["end_time"]
    assert double.calls["get"] == 2, "one for the create, and one for all who asked"


async def test_an_answer_that_comes_late_is_recorded_all_the_same(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    await api.sync(caller, project)
    double.inject("slow", "get", seconds=1.2)
    api.clock.advance(minutes(4))
    assert (await api.status(caller, project))["stale"]
    store = SqlPreviewStore(api.previews.database)
    before = await store.find(project)
    assert before is not None
    async with asyncio.timeout(20):
        while (now := await store.find(project)) == before:
            await asyncio.sleep(0.05)
    assert now is not None
    assert now.last_checked is not None
    assert before.last_checked is not None
    assert now.last_checked > before.last_checked
    api.clock.advance(minutes(4))
    assert (await api.status(caller, project))["stale"], "fresh by the answer that came late"


async def test_where_nothing_fresh_is_known_it_is_unknown_for_now(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    await api.sync(caller, project)
    double.inject("slow", "get", seconds=1.2)
    api.clock.advance(minutes(6))
    told = await api.call("GET", f"/projects/{project}/sandbox/status", caller)
    answer = told.json()
    assert (answer["status"], answer["action_required"]) == ("unknown", "retry_later")
    assert answer["retry_after"] == RETRY_AFTER_SEC
    assert told.headers["Retry-After"] == str(RETRY_AFTER_SEC)
    await asyncio.sleep(2)
    answer = await api.status(caller, project)
    assert (answer["status"], answer["retry_after"]) == ("running", None), "asked meanwhile"


async def test_nobody_waits_for_a_question_that_others_have_waited_for(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    await api.sync(caller, project)
    double.inject("hang", "get")
    api.clock.advance(minutes(6))
    first = await api.status(caller, project)
    assert (first["status"], first["retry_after"]) == ("unknown", RETRY_AFTER_SEC)
    began = asyncio.get_running_loop().time()
    for _ in range(40):
        assert (await api.status(caller, project))["status"] == "unknown"
    waited_for_each = 40 * ANSWER_WITHIN_SEC
    assert asyncio.get_running_loop().time() - began < waited_for_each
    assert double.calls["get"] == 2, "one for the create, and one for all who asked"
    api.clock.advance(minutes(30))
    ended = await api.status(caller, project)
    assert (ended["status"], ended["action_required"]) == ("expired", "sync_needed")
