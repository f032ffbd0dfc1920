"""Local previews of two servers on one database: each keeps to its own, and says whose it is."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.previews.errors import ProviderTimeoutError
from sandyard.previews.jobs import EndReport
from sandyard.previews.providers.local import LocalPreviewProvider
from tests.support.clocks import RunningClock
from tests.support.e2b.double import E2bDouble
from tests.support.platform.in_process import MigratedEngines, code_of
from tests.support.previews.in_process import PreviewApi, another_replica, minutes, preview_api
from tests.support.previews.providers import local_provider
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import end_all


class BreaksOff(LocalPreviewProvider):
    """Makes what it is asked for, and its answer is lost."""

    async def create(self, **order: Any) -> Any:
        await super().create(**order)
        raise ProviderTimeoutError


@pytest.fixture
async def runtimes(tmp_path: Path) -> AsyncIterator[list[LocalRuntime]]:
    runtimes = [LocalRuntime(tmp_path / name / "runtime") for name in ("a", "b")]
    yield runtimes
    for each in runtimes:
        await end_all(each)


@pytest.fixture
async def servers(
    migrated: MigratedEngines, tmp_path: Path, double: E2bDouble, runtimes: list[LocalRuntime]
) -> AsyncIterator[list[PreviewApi]]:
    """On the nodes `a` and `b`, with one clock."""
    url, clock = await migrated.copy("postgresql", tmp_path), RunningClock()
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                preview_api(
                    url,
                    tmp_path / node,
                    double,
                    clock=clock,
                    provider=local_provider(runtime, node=node),
                )
            )
            for node, runtime in zip(("a", "b"), runtimes, strict=True)
        ]


async def rows(api: PreviewApi) -> Any:
    select = sa.text("SELECT * FROM previews.previews")
    return await api.previews.database.read(lambda connection: connection.execute(select).all())


async def end_previews(api: PreviewApi) -> Any:
    [job] = [job for job in api.previews.schedule if job.plain_name == "end-previews"]
    return await api.previews.runner.run(job)


async def test_what_another_node_runs_is_refused_with_its_name_and_stays_as_it_is(
    servers: list[PreviewApi], runtimes: list[LocalRuntime]
) -> None:
    a, b = servers
    caller = await a.account()
    project = await a.project(caller, **{"index.html": "hello"})
    made = await a.sync(caller, project)
    before = await rows(a)
    for method, path in (("GET", "sandbox/status"), ("POST", "sync")):
        refused = await b.call(method, f"/projects/{project}/{path}", caller)
        assert code_of(refused) == (503, "PREVIEW_ELSEWHERE")
        assert refused.json()["error"]["details"] == {"node": "a"}
        assert "The node is a." in refused.json()["error"]["message"]
    assert await rows(a) == before
    assert (await a.status(caller, project))["status"] == "running"
    again = (await a.sync(caller, project))["data"]
    assert again == made["data"] | {"outcome": "unchanged"}
    assert await runtimes[1].list_runs("preview") == []
    assert await b.put_files(caller, project, {"index.html": "by b"}) == 2, "files are anywhere"
    await a.sync(caller, project)


async def test_each_node_ends_its_own(
    servers: list[PreviewApi], runtimes: list[LocalRuntime]
) -> None:
    a, b = servers
    caller = await a.account()
    project = await a.project(caller, **{"index.html": "hello"})
    await a.sync(caller, project)
    assert (await b.call("DELETE", f"/projects/{project}", caller)).status_code == 204
    assert await end_previews(b) == EndReport()
    assert len(await runtimes[0].list_runs("preview")) == 1
    assert await end_previews(a) == EndReport(ended=1, removed=1)
    assert await runtimes[0].list_runs("preview") == []


async def test_when_the_time_of_a_lost_node_is_over_another_goes_on(
    servers: list[PreviewApi], runtimes: list[LocalRuntime]
) -> None:
    a, b = servers
    caller = await a.account()
    recorded, attempted = [await a.project(caller, index=str(n)) for n in range(2)]
    await a.sync(caller, recorded)
    maker = another_replica(a, local_provider(runtimes[0], node="a", kind=BreaksOff))
    with pytest.raises(ProviderTimeoutError):
        await maker.sync(attempted, account_id=caller.account_id, actor="system")
    a.clock.advance(minutes(20))  # the attempt is over, but not what it may have made
    assert await end_previews(b) == EndReport()
    for project in (recorded, attempted):
        refused = await b.call("POST", f"/projects/{project}/sync", caller)
        assert code_of(refused) == (503, "PREVIEW_ELSEWHERE")
    a.clock.advance(minutes(15))
    assert await end_previews(b) == EndReport(settled=1)
    for project in (recorded, attempted):
        assert (await b.sync(caller, project))["success"]
    assert len(await runtimes[1].list_runs("preview")) == 2
