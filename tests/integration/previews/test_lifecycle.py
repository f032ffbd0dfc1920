"""Random lives of previews: after any run of callers at once, some cut off in the middle, replicas
opened anew and a provider in trouble, the events lead to the states."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from hypothesis.stateful import rule

from sandyard.kit.clock import utc_time
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.previews.verification import verify
from tests.support.e2b.double import E2bDouble, e2b_double
from tests.support.platform.in_process import MigratedEngines
from tests.support.platform.random_requests import (
    RandomCall,
    RandomRequests,
    random_calls,
    run_random_requests,
)
from tests.support.previews.in_process import PreviewApi, preview_api
from tests.support.storage.engines import ONE_SQL_ENGINE, SQL_ENGINES

TROUBLE = ("rate_limited", "error", "drop", "drop_after")
WHERE = ("create", "get", "upload")
PROJECTS = 3
QUOTA = 2


class Pages(RandomRequests[PreviewApi]):
    double: E2bDouble

    async def begin(self) -> None:
        self.provider = AsyncExitStack()
        self.double = await self.provider.enter_async_context(e2b_double())

    async def end(self) -> None:
        await self.provider.aclose()

    async def prepare(self) -> None:
        [api, *_] = self.apis
        self.caller, self.admin = await api.account(), await api.admin()
        self.projects = [await api.project(self.caller, a="0") for _ in range(PROJECTS)]
        for number in range(QUOTA):
            for what in ("sync", "edit", "sync"):
                await self._use(RandomCall(what, number, 0, None))

    @asynccontextmanager
    async def replicas(self) -> AsyncIterator[list[PreviewApi]]:
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(
                    preview_api(
                        self.url,
                        self.data_dir,
                        self.double,
                        clock=self.clock,
                        attempt_sec=5,
                        previews_per_account=QUOTA,
                    )
                )
                for _ in range(1 if self.url is None else 2)
            ]

    @rule(calls=random_calls("sync", "sync", "sync", "edit", "edit", "status"))
    def use(self, calls: list[RandomCall]) -> None:
        self.together([(self._use(each), each.cancel_after) for each in calls])

    @rule(calls=random_calls("sync", "sync", "trouble", "expire"))
    def trouble(self, calls: list[RandomCall]) -> None:
        self.together([(self._use(each), each.cancel_after) for each in calls])
        self.double.calm()

    @rule(
        ends=random_calls("archive", "unarchive", "unarchive", "delete"),
        others=random_calls("sync", "edit", "jobs", "jobs"),
    )
    def end_projects(self, ends: list[RandomCall], others: list[RandomCall]) -> None:
        self.together([(self._use(each), each.cancel_after) for each in (*ends[:2], *others)])

    @rule(others=random_calls("sync", "edit", "jobs"))
    def deactivate(self, others: list[RandomCall]) -> None:
        """The account in the middle of what it does, which is then active again."""
        path = f"/admin/users/{self.caller.account_id}"
        [api, *_] = self.apis
        works = [(self._use(each), each.cancel_after) for each in others]
        self.together([*works, (self._call(api, "POST", f"{path}/deactivate", self.admin), None)])
        self.run(self._call(api, "POST", f"{path}/activate", self.admin))

    async def check(self) -> None:
        [api, *_] = self.apis
        store = SqlPreviewStore(api.previews.database)
        report = await verify(store, api.previews.log)
        assert report.problems == []
        running = await store.running(self.caller.account_id, at=utc_time(self.clock.now()))
        assert len(running.project_ids) <= QUOTA

    async def _use(self, call: RandomCall) -> None:
        api, project = self.api(call), self.projects[call.number % PROJECTS]
        path = f"/projects/{project}"
        match call.action:
            case "trouble":
                self.double.inject(TROUBLE[call.number % 4], WHERE[call.number % 3], times=1)
            case "expire" if self.double.boxes:
                self.double.end(self.double.boxes[call.number % len(self.double.boxes)].sandbox_id)
            case "jobs":
                for job in api.previews.schedule:
                    await api.previews.runner.run(job)
            case "edit":
                files = [{"path": "abc"[call.number % 3], "content": str(call)}]
                await self._call(api, "PUT", f"{path}/files", self.caller, json={"files": files})
            case "status":
                await self._call(api, "GET", f"{path}/sandbox/status", self.caller)
            case "delete":
                await self._call(api, "DELETE", path, self.caller)
            case "sync" | "archive" | "unarchive":
                await self._call(api, "POST", f"{path}/{call.action}", self.caller)

    async def _call(self, api: PreviewApi, *arguments: Any, **options: Any) -> None:
        answer = await api.call(*arguments, **options)
        assert answer.status_code < 500 or answer.status_code == 503, answer.text


@pytest.mark.parametrize("engine", ONE_SQL_ENGINE)
def test_random_lives(migrated: MigratedEngines, engine: str) -> None:
    run_random_requests(Pages, migrated, engine, examples=2, steps=8)


@pytest.mark.torture
@pytest.mark.parametrize("engine", SQL_ENGINES)
def test_many_random_lives(migrated: MigratedEngines, engine: str) -> None:
    run_random_requests(Pages, migrated, engine, examples=30, steps=30)
