"""The events of Previews lead to their states, after any run of many callers on each engine."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from sandyard.kit.changes.events import fold
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.previews.verification import verify
from tests.support.clocks import RunningClock
from tests.support.e2b.double import E2bDouble, e2b_double
from tests.support.platform.in_process import Caller, migrate_engines
from tests.support.previews.in_process import PreviewApi, preview_api
from tests.support.storage.engines import ONE_SQL_ENGINE

PROJECTS = 4
CALLERS = 4
ROUNDS = 12
TROUBLE = ("rate_limited", "error", "drop", "drop_after")


@pytest.fixture(params=ONE_SQL_ENGINE)
def database_url(request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str) -> str | None:
    migrated = migrate_engines(tmp_path / "migrated", postgres_url)
    return asyncio.run(migrated.copy(request.param, tmp_path))


@pytest.fixture
async def double() -> AsyncIterator[E2bDouble]:
    async with e2b_double() as double:
        yield double


@asynccontextmanager
async def replicas_on(
    url: str | None, tmp_path: Path, double: E2bDouble
) -> AsyncIterator[list[PreviewApi]]:
    """Two of them on PostgreSQL, with one clock, which runs some ten times as fast as time."""
    clock = RunningClock()

    async def hurry() -> None:
        while True:
            await asyncio.sleep(0.05)
            clock.advance(0.5)

    async with AsyncExitStack() as stack:
        count = 1 if url is None else 2
        replicas = [
            await stack.enter_async_context(preview_api(url, tmp_path, double, clock=clock))
            for _ in range(count)
        ]
        hurrying = asyncio.create_task(hurry())
        try:
            yield replicas
        finally:
            hurrying.cancel()
            with suppress(asyncio.CancelledError):
                await hurrying


async def live(
    api: PreviewApi, caller: Caller, projects: Sequence[str], double: E2bDouble, seed: int
) -> None:
    """One of many who edit, look and sync, while sandboxes end and the provider is in trouble."""
    chance = random.Random(seed)
    for number in range(ROUNDS):
        path = f"/projects/{chance.choice(projects)}"
        body = {"files": [{"path": chance.choice("abc"), "content": f"{seed} {number}"}]}
        match chance.randrange(8):
            case 0 | 1:
                answer = await api.call("PUT", f"{path}/files", caller, json=body)
            case 2:
                answer = await api.call("GET", f"{path}/sandbox/status", caller)
            case 3 if double.boxes:
                double.end(chance.choice(double.boxes).sandbox_id)
                answer = await api.call("GET", f"{path}/sandbox/status", caller)
            case 4:
                double.inject(chance.choice(TROUBLE), "create", times=1)
                answer = await api.call("POST", f"{path}/sync", caller)
            case _:
                answer = await api.call("POST", f"{path}/sync", caller)
        assert answer.status_code in (200, 404, 409, 503), answer.text


async def test_events_lead_to_the_states_after_any_run(
    database_url: str | None, tmp_path: Path, double: E2bDouble
) -> None:
    async with replicas_on(database_url, tmp_path, double) as replicas:
        [api, *_] = replicas
        caller = await api.account()
        projects = [await api.project(caller, a="0") for _ in range(PROJECTS)]
        lives = [
            live(replicas[seed % len(replicas)], caller, projects, double, seed)
            for seed in range(CALLERS)
        ]
        deleted = projects[0]
        await asyncio.gather(*lives, delete(api, caller, deleted, double))
        double.calm()
        api.clock.advance(3600)
        for job in api.previews.schedule:
            await api.previews.runner.run(job)
        store, log = SqlPreviewStore(api.previews.database), api.previews.log
        report = await verify(store, log)
        # The double's clock goes on while the test's is advanced: its times are not compared.
        problems = [each for each in report.problems if "made before the end" not in each.message]
        assert (report.subjects, problems) == (PROJECTS - 1, [])
        events = await log.state_events(projects)
        assert fold(events[deleted]) is None
        for project in projects:
            sequences = [each.sequence or 0 for each in events[project]]
            assert sequences == sorted(set(sequences))


async def delete(api: PreviewApi, caller: Caller, project: str, double: E2bDouble) -> None:
    """Delete it in the middle of all that, and remove what is left as soon as nobody makes it."""
    await double.called("create", times=3)
    assert (await api.call("DELETE", f"/projects/{project}", caller)).status_code == 204
    [job] = [job for job in api.previews.schedule if job.name == "deleted-projects"]
    await api.previews.runner.run(job)


async def test_a_lost_change_is_seen(
    database_url: str | None, tmp_path: Path, double: E2bDouble
) -> None:
    async with preview_api(database_url, tmp_path, double) as api:
        caller = await api.account()
        project = await api.project(caller, a="0")
        forged = sa.text("UPDATE previews.previews SET files_version = 9")
        await api.previews.database.write(lambda connection: connection.execute(forged))
        report = await verify(SqlPreviewStore(api.previews.database), api.previews.log)
        assert [each.subject for each in report.problems] == [project]
        assert "files_version" in report.problems[0].message
