"""Jobs under leases on the real engines: one run at a time, whoever dies."""

import asyncio

import pytest

from sandyard.broker.stores import tables
from sandyard.kit.jobs import Job, JobRun
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.job_leases import SqlJobLeases
from tests.integration.conftest import eventually
from tests.integration.jobs.leases import (
    LEASE_SEC,
    NAME,
    Leases,
    MakeRunner,
    Work,
    run_if_due,
    within_deadline,
)
from tests.support.clocks import ManualClock
from tests.support.job_runs import finished


class TestLeases:
    async def test_a_lease_has_one_holder_until_its_time_is_over(self, leases: Leases) -> None:
        assert await leases.take("a", now=100, held_until=160)
        assert not await leases.take("b", now=100)
        assert not await leases.take("b", now=159.999)
        assert await leases.take("b", now=160)

    async def test_a_holder_cannot_take_its_lease_twice(self, leases: Leases) -> None:
        assert await leases.take("a", now=100, held_until=160)
        assert not await leases.take("a", now=101)

    async def test_one_of_many_concurrent_holders_gets_the_lease(self, leases: Leases) -> None:
        for now in (100.0, 1000.0):
            taken = await asyncio.gather(
                *(leases.take(f"holder-{n}", now=now, held_until=now + 60) for n in range(50))
            )
            assert sum(taken) == 1
            assert (await leases.row()).holder == f"holder-{taken.index(True)}"

    async def test_jobs_are_leased_one_by_one(self, leases: Leases) -> None:
        for job in ("sync", "cleanup", "expiry"):
            assert await leases.acquire(job, holder="a", now=100, held_until=160)

    async def test_a_touch_updates_its_time_and_takes_no_lease(self, leases: Leases) -> None:
        await leases.take("a", now=100, held_until=160)
        for now in (100.0, 200.0):
            await leases.touch(now=now)
            assert await finished(leases, [NAME, "write-check"]) == {"write-check": now}
        assert (await leases.row()).holder == "a"

    async def test_the_holder_alone_renews(self, leases: Leases) -> None:
        assert not await leases.renew(NAME, holder="a", held_until=500)
        await leases.take("a", now=100, held_until=160)
        assert not await leases.renew(NAME, holder="b", held_until=500)
        assert (await leases.row()).held_until == 160
        assert await leases.renew(NAME, holder="a", held_until=200)
        assert not await leases.take("b", now=199)
        assert await leases.take("b", now=200, held_until=260)
        assert not await leases.renew(NAME, holder="a", held_until=900)
        assert (await leases.row()).held_until == 260

    async def test_the_holder_alone_releases(self, leases: Leases) -> None:
        await leases.take("a", now=100, held_until=160)
        await leases.release(NAME, holder="b", finished_at=110)
        assert not await leases.take("b", now=110)
        assert await finished(leases, [NAME]) == {}
        await leases.release(NAME, holder="a", finished_at=110)
        assert await finished(leases, [NAME]) == {NAME: 110}
        assert not await leases.renew(NAME, holder="a", held_until=500)
        assert await leases.take("b", now=110)

    async def test_a_run_that_did_not_come_to_its_end_leaves_the_last_success_as_it_was(
        self, leases: Leases
    ) -> None:
        await leases.take("a", now=100)
        await leases.release(NAME, holder="a", finished_at=110)
        await leases.take("a", now=200)
        await leases.release(NAME, holder="a", finished_at=None)
        assert await finished(leases, [NAME]) == {NAME: 110}

    async def test_a_job_tells_when_it_began_ended_and_who_holds_it(self, leases: Leases) -> None:
        assert await leases.runs([NAME]) == {}
        await leases.take("a", now=100, held_until=160)
        assert await leases.runs([NAME, "other"]) == {NAME: JobRun(100, None, 160)}
        await leases.release(NAME, holder="a", finished_at=110)
        assert await leases.runs([NAME]) == {NAME: JobRun(100, 110, None)}

    async def test_one_that_was_started_within_the_interval_is_refused(
        self, leases: Leases
    ) -> None:
        async def ask(now: float, unless_started_after: float) -> bool:
            return await leases.acquire(
                NAME,
                holder="b",
                now=now,
                held_until=now + LEASE_SEC,
                unless_started_after=unless_started_after,
            )

        await leases.take("a", now=100)
        await leases.release(NAME, holder="a", finished_at=110)
        assert not await ask(120, 99.999)
        assert await ask(120, 100)

    async def test_one_whose_holder_died_is_taken_as_soon_as_its_time_is_over(
        self, leases: Leases
    ) -> None:
        async def ask(now: float) -> bool:
            return await leases.acquire(
                NAME, holder="b", now=now, held_until=now + LEASE_SEC, unless_started_after=0
            )

        await leases.take("a", now=100)
        assert not await ask(100 + LEASE_SEC - 1)
        assert await ask(100 + LEASE_SEC)

    async def test_forgetting_holders_frees_every_job_and_its_interval(
        self, database: Database
    ) -> None:
        leases = SqlJobLeases(database, tables.jobs)
        assert await leases.acquire(NAME, holder="a", now=100, held_until=160)
        await leases.forget_holders()
        assert await leases.acquire(
            NAME, holder="b", now=101, held_until=160, unless_started_after=-1000
        )


class TestTurns:
    async def test_runs_of_many_runners_never_overlap(
        self, make_runner: MakeRunner, work: Work, leases: Leases
    ) -> None:
        work.gate.set()
        runners = [make_runner(f"runner-{number}") for number in range(4)]
        runs = [runner.run(work.job()) for runner in runners for _ in range(3)]
        reports = await within_deadline(asyncio.gather(*runs))
        assert sorted(reports) == list(range(1, 13))
        assert work.most_at_once == 1
        assert (await leases.row()).holder is None

    async def test_of_many_who_ask_whether_it_is_due_one_runs_it(
        self, make_runner: MakeRunner, work: Work
    ) -> None:
        work.gate.set()
        runners = [make_runner(f"runner-{number}") for number in range(8)]
        reports = await within_deadline(
            asyncio.gather(*(run_if_due(runner, work.job()) for runner in runners))
        )
        assert sorted(reports, key=str) == [1, *[None] * 7]
        assert (work.started, work.most_at_once) == (1, 1)

    async def test_different_jobs_run_side_by_side(self, make_runner: MakeRunner) -> None:
        runner = make_runner("a")
        first, second = Work(), Work()
        runs = [
            asyncio.create_task(runner.run(Job("sync", 600, first))),
            asyncio.create_task(runner.run(Job("cleanup", 600, second))),
        ]
        await eventually(lambda: first.at_once == 1 and second.at_once == 1)
        first.gate.set()
        second.gate.set()
        assert await within_deadline(asyncio.gather(*runs)) == [1, 1]

    @pytest.mark.parametrize("other", ["another", "the same"])
    async def test_run_waits_for_a_running_one_and_then_runs(
        self, make_runner: MakeRunner, work: Work, other: str
    ) -> None:
        first = make_runner("first")
        second = first if other == "the same" else make_runner("second")
        later = Work()
        later.gate.set()
        running = asyncio.create_task(first.run(work.job()))
        await eventually(lambda: work.started == 1)
        waiting = asyncio.create_task(second.run(later.job()))
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert (done, later.started) == (set(), 0)
        work.gate.set()
        assert await within_deadline(running) == 1
        assert await within_deadline(waiting) == 1

    @pytest.mark.parametrize("other", ["another", "the same"])
    async def test_run_if_due_does_not_wait_for_a_running_one(
        self, make_runner: MakeRunner, work: Work, other: str
    ) -> None:
        first = make_runner("first")
        second = first if other == "the same" else make_runner("second")
        running = asyncio.create_task(first.run(work.job()))
        await eventually(lambda: work.started == 1)
        assert await within_deadline(second.run_if_due(work.job(), interval_sec=0)) is None
        work.gate.set()
        assert await within_deadline(running) == 1
        assert work.started == 1

    async def test_run_if_due_skips_what_another_started_within_the_interval(
        self, make_runner: MakeRunner, work: Work, clock: ManualClock
    ) -> None:
        work.gate.set()
        first, second = make_runner("first"), make_runner("second")
        job = work.job(interval_sec=600)
        assert await first.run_if_due(job) == 1
        assert await second.run_if_due(job) is None
        clock.advance(599)
        assert await second.run_if_due(job) is None
        assert await first.run_if_due(job) is None
        clock.advance(1)
        assert await second.run_if_due(job) == 2
        assert await first.run_if_due(job) is None

    async def test_run_if_due_takes_another_interval_when_told(
        self, make_runner: MakeRunner, work: Work, clock: ManualClock
    ) -> None:
        work.gate.set()
        runner = make_runner("a")
        await runner.run(work.job())
        clock.advance(30)
        assert await runner.run_if_due(work.job(), interval_sec=31) is None
        assert await runner.run_if_due(work.job(), interval_sec=30) == 2

    async def test_run_heeds_no_interval_but_counts_for_it(
        self, make_runner: MakeRunner, work: Work
    ) -> None:
        work.gate.set()
        runner = make_runner("a")
        assert await runner.run(work.job()) == 1
        assert await runner.run(work.job()) == 2
        assert await runner.run_if_due(work.job()) is None

    async def test_a_finished_run_is_noted_with_its_end(
        self, make_runner: MakeRunner, work: Work, leases: Leases, clock: ManualClock
    ) -> None:
        running = asyncio.create_task(make_runner("a").run(work.job()))
        await eventually(lambda: work.started == 1)
        started_at = clock.now()
        clock.advance(17)
        work.gate.set()
        await within_deadline(running)
        row = await leases.row()
        assert (row.started_at, row.finished_at) == (started_at, started_at + 17)
        assert (row.holder, row.held_until) == (None, None)


class TestDeadHolders:
    async def test_its_job_is_taken_over_at_the_end_of_its_lease_and_not_before(
        self, make_runner: MakeRunner, work: Work, leases: Leases, clock: ManualClock
    ) -> None:
        work.gate.set()
        assert await leases.take("dead", now=clock.now())
        runner = make_runner("alive")
        for seconds in (0, 30, 29.9):
            clock.advance(seconds)
            assert await runner.run_if_due(work.job(), interval_sec=0) is None
        clock.advance(0.1)
        assert await runner.run_if_due(work.job(), interval_sec=0) == 1

    async def test_run_waits_for_the_end_of_a_dead_holders_lease(
        self, make_runner: MakeRunner, work: Work, leases: Leases, clock: ManualClock
    ) -> None:
        work.gate.set()
        assert await leases.take("dead", now=clock.now())
        waiting = asyncio.create_task(make_runner("alive").run(work.job()))
        clock.advance(59.9)
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert (done, work.started) == (set(), 0)
        clock.advance(0.1)
        assert await within_deadline(waiting) == 1

    async def test_a_late_holder_cannot_renew_or_release_the_next_ones_lease(
        self, leases: Leases, clock: ManualClock
    ) -> None:
        now = clock.now()
        assert await leases.take("late", now=now, held_until=now + 60)
        assert await leases.take("next", now=now + 60, held_until=now + 120)
        assert not await leases.renew(NAME, holder="late", held_until=now + 500)
        await leases.release(NAME, holder="late", finished_at=now + 61)
        row = await leases.row()
        assert (row.holder, row.held_until, row.finished_at) == ("next", now + 120, None)
