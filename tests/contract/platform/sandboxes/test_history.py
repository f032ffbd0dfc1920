"""Whoever does what at the same time, the events lead to the states that are stored."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from sandyard.kit.changes.events import EventQuery
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.clock import utc_time
from sandyard.platform.events.entities import platform_events
from sandyard.platform.quotas.model import QuotaRequest, Resources
from sandyard.platform.sandboxes.errors import (
    QuotaExceededError,
    SandboxBusyError,
    SandboxRecycledError,
)
from sandyard.platform.sandboxes.model import (
    ProjectState,
    Sandbox,
    StartFacts,
    Status,
    approve_start,
)
from sandyard.platform.sandboxes.runs.end_model import End
from sandyard.platform.sandboxes.runs.model import (
    Accounting,
    Started,
    Transitions,
    drop_snapshot,
    record_end,
    record_started,
    recycle_sandbox,
)
from sandyard.platform.schema.tables import projects, sandbox_usage
from tests.contract.platform.lives import (
    AMPLE,
    DAY,
    IDS,
    PRICES,
    Life,
    bill,
    cause,
    life,
    rows_of,
    sandbox_store,
    template_of,
)
from tests.support.platform.event_replay import assert_history
from tests.support.platform.in_process import PlatformApi
from tests.support.platform.sandboxes import add_template

REFUSED = (SandboxRecycledError, SandboxBusyError, QuotaExceededError)


class Racer:
    """Does something with a sandbox that others do something with too; may come too late."""

    def __init__(
        self, api: PlatformApi, sandbox_id: str, now: datetime, chance: random.Random
    ) -> None:
        self.life = Life(api, sandbox_id)
        self.now = now
        self.chance = chance

    async def start(self) -> None:
        await self.life.begin(AMPLE, self.now)

    async def record_started(self) -> None:
        box = await self.life.look()
        run = Started(box.attempt, "http://127.0.0.1:1", self.now, self.now + timedelta(days=1))
        await self._apply(record_started(box, run, Accounting(IDS.new(), PRICES, cause(self.now))))

    async def end(self) -> None:
        self.life.attempt = (await self.life.look()).attempt
        await self.life.record_end(self.now, self.chance.choice([None, 10**9]))

    async def rename(self) -> None:
        await self.life.resize(self.chance.choice([1.0, 2.0]), self.now)

    async def drop(self) -> None:
        box = await self.life.look()
        await self._apply(drop_snapshot(box, Accounting(IDS.new(), PRICES, cause(self.now))))

    async def recycle(self) -> None:
        box = await self.life.look()
        await self._apply(recycle_sandbox(box, Accounting(IDS.new(), PRICES, cause(self.now))))

    async def _apply(self, transitions: Transitions | None) -> None:
        if transitions is not None:
            await self.life.store.apply(*transitions)


async def race(
    api: PlatformApi, sandbox_ids: Sequence[str], steps: int, chance: random.Random
) -> None:
    for _ in range(steps):
        racer = Racer(api, chance.choice(sandbox_ids), utc_time(api.clock.now()), chance)
        often: list[Callable[[], Awaitable[None]]] = [
            racer.start,
            racer.record_started,
            racer.end,
            racer.rename,
            racer.drop,
        ]
        with suppress(*REFUSED):
            await chance.choice([*often * 4, racer.recycle])()
        if chance.random() < 0.05:
            api.clock.advance(chance.choice([0.5, 60, DAY / 3]))


async def test_after_any_race_the_events_fold_into_the_states(
    replicas: Sequence[PlatformApi],
) -> None:
    api = replicas[0]
    ann, template_id = await api.account(), await add_template(api)
    ids = [(await life(api, ann.account_id, template_id)).sandbox_id for _ in range(4)]
    for turn in range(3):
        chances = [random.Random(f"{turn} {number}") for number in range(4)]
        await asyncio.gather(
            *(race(replicas[n % 2], ids, 20, chance) for n, chance in enumerate(chances)),
            *(bill(each, each.clock) for each in replicas),
        )
        assert await assert_history(api.part.database) >= len(ids)
        await assert_open_while_running(api, ids)


async def assert_open_while_running(api: PlatformApi, ids: Sequence[str]) -> None:
    open_ones = [row for row in await rows_of(api, sandbox_usage, ids) if row.end_time is None]
    states = {each: (await Life(api, each).look()).status for each in ids}
    running = [each for each, status in states.items() if status is Status.RUNNING]
    assert sorted(row.sandbox_id for row in open_ones) == sorted(running)


async def test_of_two_starts_one_gets_the_last_place(replicas: Sequence[PlatformApi]) -> None:
    ann, template_id = await replicas[0].account(), await add_template(replicas[0])
    one_place = Resources(1, 99, 99, 99)
    for _ in range(5):
        boxes = [await life(each, ann.account_id, template_id) for each in replicas]
        now = utc_time(replicas[0].clock.now())
        outcomes = await asyncio.gather(
            *(each.begin(one_place, now) for each in boxes), return_exceptions=True
        )
        assert outcomes.count(True) == 1
        assert [type(each) for each in outcomes if each is not True] == [QuotaExceededError]
        for each in boxes:
            await each.record_end(now)


async def test_recycling_and_starting_exclude_each_other(replicas: Sequence[PlatformApi]) -> None:
    api, other = replicas
    ann, template_id = await api.account(), await add_template(api)
    now = utc_time(api.clock.now())
    for _ in range(6):
        box = await life(api, ann.account_id, template_id)
        racer = Racer(other, box.sandbox_id, now, random.Random(0))
        await asyncio.gather(box.begin(AMPLE, now), racer.recycle(), return_exceptions=True)
        status = (await box.look()).status
        query = EventQuery(subject=box.sandbox_id)
        page = await platform_events(api.part.database).page(query, limit=10, cursor=None)
        done = {each.event.kind for each in page.items}
        if status is Status.RECYCLED:
            assert done == {"sandbox.recycled", "sandbox.created"}
        else:
            assert (status, done) == (Status.STARTING, {"sandbox.starting", "sandbox.created"})
            await box.record_end(now)
    await assert_history(api.part.database)


@pytest.mark.parametrize("change", ["archive", "delete"])
async def test_a_project_that_ended_since_it_was_read_takes_no_sandbox(
    api: PlatformApi, change: str
) -> None:
    ann = await api.account()
    project_id = (await api.post("/projects", ann, {"name": "p"}))["project_id"]
    box = await life(api, ann.account_id, await add_template(api), project_id=project_id)
    store = sandbox_store(api)
    before = await store.find_project(ann.account_id, project_id)
    assert before == ProjectState(project_id, ann.account_id, is_archived=False)
    now = utc_time(api.clock.now())
    values = {"status": "archived"} if change == "archive" else {"deleted_at": now}
    ends = projects.update().where(projects.c.project_id == project_id).values(values)
    await api.part.database.write(lambda connection: connection.execute(ends))
    transition = await started_with(box, before, now)
    assert not await store.apply(transition)
    assert (await box.look()).status is Status.CREATED
    await assert_history(api.part.database)


async def started_with(box: Life, project: ProjectState, now: datetime) -> Transition[Sandbox]:
    before = await box.look()
    request = QuotaRequest(before.owner_account_id, 1, 1, AMPLE)
    facts = StartFacts(before, await template_of(box.api, before), project)
    approved = approve_start(facts, await box.store.check_quota(request))
    assert approved is not None
    return approved.begin(node="n", cause=cause(now))


async def test_a_stale_decision_writes_nothing_at_all(api: PlatformApi) -> None:
    ann = await api.account()
    box = await life(api, ann.account_id, await add_template(api))
    now = utc_time(api.clock.now())
    await box.start(now)
    found = await box.store.find_with_usage(box.sandbox_id)
    assert found is not None
    await box.end(now + timedelta(seconds=5), 10)
    counted = sa.select(sa.func.count()).select_from(sandbox_usage)
    before = await api.part.database.read(lambda c: c.execute(counted).scalar_one())
    run = Started(1, "http://127.0.0.1:2", now, now)
    stale = record_started(found[0], run, Accounting(IDS.new(), PRICES, cause(now)))
    assert stale is None, "it is running, so nothing starts"
    late = End(1, Status.TIMEOUT, "it reached its deadline", now + timedelta(seconds=9))
    transitions = record_end(*found, late, Accounting(IDS.new(), PRICES, cause(now)))
    assert transitions is not None
    assert not await box.store.apply(*transitions)
    assert await api.part.database.read(lambda c: c.execute(counted).scalar_one()) == before
    assert (await box.look()).status is Status.STOPPED
    notices = (await api.get("/notifications", ann))["notifications"]
    assert [each["title"].split(" ", 1)[1] for each in notices] == ["has ended"]
    await assert_history(api.part.database)
