"""Random lives of accounts, keys, projects, sandboxes and usage: after any run of callers at once,
some of them cut off in the middle, the events lead to the tables."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from hypothesis.stateful import rule

from sandyard.platform.events.verification import verify_platform
from sandyard.platform.sandboxes.model import Status
from sandyard.platform.sandboxes.sql.store import SANDBOXES
from sandyard.platform.usage.sql import USAGES
from sandyard.runtime.model import Ended, Limits, Program, RunId, Running
from tests.contract.platform.access.test_isolation import key_of
from tests.fakes.runtime import FakeRuntime
from tests.support.clocks import ManualClock
from tests.support.platform.event_replay import all_of
from tests.support.platform.in_process import Caller, MigratedEngines, PlatformApi, platform_api
from tests.support.platform.random_requests import (
    RandomCall,
    RandomRequests,
    random_calls,
    run_random_requests,
)
from tests.support.platform.sandboxes import add_template
from tests.support.storage.engines import ONE_SQL_ENGINE, SQL_ENGINES

QUOTA = 2
NAMES = ("one", "two", "three")
NOUNS = ("projects", "api-keys", "sandboxes")
OF_PROJECTS = ("archive", "unarchive", "make-default", "rename", "delete")
OF_KEYS = ("activate", "deactivate", "rename", "delete")
OF_SANDBOXES = ("start", "start", "start", "stop", "rename", "delete")


class ClockedRuntime(FakeRuntime):
    """By the Platform's own clock, whatever replica asks."""

    clock: ManualClock

    async def start(self, run_id: RunId, program: Program, limits: Limits) -> Running:
        await super().start(run_id, program, limits)
        now = self.clock.now()
        running = Running(run_id, 8080, now, now + limits.max_running_sec)
        self._runs[run_id] = running
        return running

    async def stop(self, run_id: RunId, *, has_memory: bool = False) -> Ended:
        was = self._runs.get(run_id)
        ended = await super().stop(run_id, has_memory=has_memory)
        return self._ended(run_id, was, "stopped") if isinstance(was, Running) else ended

    def crash(self, number: int) -> None:
        """One of those that run ends by itself."""
        running = [each for each in self._runs.values() if isinstance(each, Running)]
        if running:
            was = running[number % len(running)]
            self._ended(was.run_id, was, "exited")

    def _ended(self, run_id: RunId, was: Running, reason: Any) -> Ended:
        ended = Ended(run_id, reason, self.clock.now(), started_at=was.started_at)
        self._runs[run_id] = ended
        return ended


class Yard(RandomRequests[PlatformApi]):
    async def begin(self) -> None:
        self.runtime = ClockedRuntime(self.data_dir / "machines")
        self.runtime.clock = self.clock
        self.callers: list[Caller] = []
        self.known: dict[str, list[tuple[Caller, str]]] = {noun: [] for noun in NOUNS}

    async def prepare(self) -> None:
        [api, *_] = self.apis
        self.template = await add_template(api)
        self.admin = await key_of(api, await api.admin())
        logins = [await api.account() for _ in range(2)]
        self.callers = [await key_of(api, each) for each in logins]
        for noun in ("projects", "sandboxes", "sandboxes"):
            for number in range(2):
                await self._create(RandomCall(noun, number, 0, None))

    @asynccontextmanager
    async def replicas(self) -> AsyncIterator[list[PlatformApi]]:
        sandboxes = {"quota_sandboxes": QUOTA}
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(
                    platform_api(
                        self.url,
                        self.data_dir,
                        self.clock,
                        runtime=self.runtime,
                        sandboxes=sandboxes,
                    )
                )
                for _ in range(1 if self.url is None else 2)
            ]

    @rule(calls=random_calls(*NOUNS))
    def create(self, calls: list[RandomCall]) -> None:
        self.together([(self._create(each), each.cancel_after) for each in calls])

    @rule(calls=random_calls(*OF_SANDBOXES))
    def use_sandboxes(self, calls: list[RandomCall]) -> None:
        self.together([(self._act("sandboxes", each), each.cancel_after) for each in calls])

    @rule(projects=random_calls(*OF_PROJECTS), keys=random_calls(*OF_KEYS))
    def use_projects_and_keys(self, projects: list[RandomCall], keys: list[RandomCall]) -> None:
        works = [(self._act("projects", each), each.cancel_after) for each in projects]
        works += [(self._act("api-keys", each), each.cancel_after) for each in keys]
        self.together(works)

    @rule(
        accounts=random_calls("spend", "deactivate", "activate", "activate"),
        jobs=random_calls("run", "crash"),
    )
    def accounts_and_jobs(self, accounts: list[RandomCall], jobs: list[RandomCall]) -> None:
        works = [(self._account(each), each.cancel_after) for each in accounts]
        works += [(self._job(each), each.cancel_after) for each in jobs]
        self.together(works)

    async def check(self) -> None:
        """The events lead to the tables, what runs is what is metered, and no account has more
        than its quota."""
        [api, *_] = self.apis
        await api.part.background.finish(within_sec=60)
        report = await verify_platform(api.part.database)
        assert report.problems == []
        assert report.subjects >= 2 * 3
        sandboxes = await all_of(api.part.database, SANDBOXES)
        active = Counter(each.owner_account_id for each in sandboxes if each.is_active)
        assert [each for each, count in active.items() if count > QUOTA] == []
        running = [each.sandbox_id for each in sandboxes if each.status is Status.RUNNING]
        usages = await all_of(api.part.database, USAGES)
        opened = [each.sandbox_id for each in usages if each.end_time is None and _runs(each)]
        assert sorted(opened) == sorted(running)

    async def _create(self, call: RandomCall) -> None:
        body: dict[str, Any] = {"name": f"{NAMES[call.number % 3]}-{len(self.known[call.action])}"}
        if call.action == "sandboxes":
            body |= {"template_id": self.template, "cpu_spec": 1, "memory_spec": 0.5}
        made = await self._call(call, "POST", f"/{call.action}", json=body)
        caller = self.callers[call.number % 2]
        self.known[call.action] += [(caller, made[key]) for key in _IDS if key in made][:1]

    async def _act(self, noun: str, call: RandomCall) -> None:
        if not self.known[noun]:
            return
        caller, subject = self.known[noun][call.number % len(self.known[noun])]
        path = f"/{noun}/{subject}"
        match call.action:
            case "rename":
                body = {"name": NAMES[call.number % 3]}
                await self._call(call, "PATCH", path, caller=caller, json=body)
            case "delete":
                await self._call(call, "DELETE", path, caller=caller)
            case action:
                await self._call(call, "POST", f"{path}/{action}", caller=caller)

    async def _account(self, call: RandomCall) -> None:
        caller = self.callers[call.number % 2]
        if call.action == "spend":
            body = {"spend_threshold": f"{call.number}.5"}
            await self._call(call, "PATCH", "/me", json=body)
        else:
            path = f"/admin/users/{caller.account_id}/{call.action}"
            await self._call(call, "POST", path, caller=self.admin)

    async def _job(self, call: RandomCall) -> None:
        if call.action == "crash":
            self.runtime.crash(call.number)
        part = self.api(call).part
        for job in part.schedule:
            await part.runner.run(job)

    async def _call(
        self,
        call: RandomCall,
        method: str,
        path: str,
        *,
        caller: Caller | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        caller = caller or self.callers[call.number % 2]
        answer = await self.api(call).call(method, path, caller, **options)
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        made: dict[str, Any] = answer.json() if answer.is_success and answer.content else {}
        return made


_IDS = ("sandbox_id", "key_id", "project_id")


def _runs(usage: Any) -> bool:
    return bool(usage.service_type == "sandbox_runtime")


@pytest.mark.parametrize("engine", ONE_SQL_ENGINE)
def test_random_lives(migrated: MigratedEngines, engine: str) -> None:
    run_random_requests(Yard, migrated, engine, examples=2, steps=10)


@pytest.mark.torture
@pytest.mark.parametrize("engine", SQL_ENGINES)
def test_many_random_lives(migrated: MigratedEngines, engine: str) -> None:
    run_random_requests(Yard, migrated, engine, examples=40, steps=40)
