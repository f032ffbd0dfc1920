"""A run that renews its lease, loses it, or is broken off."""

import asyncio
import gc
from typing import Any

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.kit.errors import UnavailableError
from sandyard.kit.jobs import Job, JobLostError
from tests.integration.conftest import eventually
from tests.integration.jobs.leases import (
    DEADLINE_SEC,
    NAME,
    CutOffLeases,
    HangingLeases,
    LateLeases,
    Leases,
    MakeRunner,
    Work,
    run_if_due,
    within_deadline,
)
from tests.support.clocks import ManualClock
from tests.support.job_runs import finished


class TestRenewal:
    async def test_a_long_job_keeps_its_lease(
        self, make_runner: MakeRunner, work: Work, leases: Leases, clock: ManualClock
    ) -> None:
        lease_sec = 1.0
        running = asyncio.create_task(make_runner("long", lease_sec=lease_sec).run(work.job()))
        await eventually(lambda: work.started == 1)
        other = make_runner("other", lease_sec=lease_sec)
        for _ in range(6):
            clock.advance(lease_sec * 0.5)
            async with asyncio.timeout(DEADLINE_SEC):
                while (await leases.row()).held_until != clock.now() + lease_sec:
                    await asyncio.sleep(0.01)
            assert await other.run_if_due(work.job(), interval_sec=0) is None
        work.gate.set()
        assert await within_deadline(running) == 1
        assert (work.started, work.broken_off) == (1, 0)

    @pytest.mark.parametrize("way", ["run", "run_if_due"])
    async def test_a_lost_lease_breaks_the_work_off(
        self, make_runner: MakeRunner, work: Work, leases: Leases, clock: ManualClock, way: str
    ) -> None:
        runner = make_runner("first", lease_sec=0.15)
        running = asyncio.create_task(getattr(runner, way)(work.job()))
        await eventually(lambda: work.started == 1)
        taken_at = clock.now() + 1000
        assert await leases.take("second", now=taken_at, held_until=taken_at + 60)
        with pytest.raises(JobLostError):
            await within_deadline(running)
        assert (work.broken_off, work.finished) == (1, 0)
        row = await leases.row()
        assert (row.holder, row.held_until) == ("second", taken_at + 60)
        assert await finished(leases, [NAME]) == {}

    async def test_renewals_that_fail_do_no_harm_while_the_lease_lasts(
        self, make_runner: MakeRunner, work: Work, leases: Leases
    ) -> None:
        cut_off = CutOffLeases.like(leases)
        runner = make_runner("a", leases=cut_off, lease_sec=0.15)
        running = asyncio.create_task(runner.run(work.job()))
        await eventually(lambda: cut_off.renewals >= 4)
        assert work.at_once == 1
        work.gate.set()
        assert await within_deadline(running) == 1
        assert (await cut_off.row()).holder is None

    async def test_one_who_could_not_renew_stops_when_its_time_is_over(
        self, make_runner: MakeRunner, work: Work, leases: Leases, clock: ManualClock
    ) -> None:
        runner = make_runner("a", leases=CutOffLeases.like(leases), lease_sec=0.15)
        running = asyncio.create_task(runner.run(work.job()))
        await eventually(lambda: work.started == 1)
        clock.advance(0.15)
        with pytest.raises(JobLostError):
            await within_deadline(running)
        assert work.broken_off == 1

    @pytest.mark.parametrize("way", ["run", "run_if_due"])
    @pytest.mark.parametrize(("late_sec", "is_kept"), [(47.9, True), (48, False), (70, False)])
    async def test_its_time_counts_from_before_the_lease_was_asked_for(
        self,
        make_runner: MakeRunner,
        work: Work,
        leases: Leases,
        clock: ManualClock,
        way: str,
        late_sec: float,
        is_kept: bool,
    ) -> None:
        late = LateLeases.like(leases)
        late.clock, late.late_sec = clock, late_sec
        running = asyncio.create_task(getattr(make_runner("a", leases=late), way)(work.job()))
        if is_kept:
            await eventually(lambda: late.renewals >= 1)
            work.gate.set()
            assert await within_deadline(running) == 1
            return
        with pytest.raises(JobLostError):
            await within_deadline(running)
        assert (work.finished, work.at_once, late.renewals) == (0, 0, 0)

    async def test_one_whose_renewal_hangs_has_stopped_when_the_next_begins(
        self, make_runner: MakeRunner, work: Work, leases: Leases
    ) -> None:
        clock = SystemClock()
        first = make_runner("first", leases=HangingLeases.like(leases), clock=clock, lease_sec=3)
        second = make_runner("second", clock=clock, lease_sec=3)
        lost = asyncio.create_task(first.run(work.job()))
        await eventually(lambda: work.started == 1)
        following = asyncio.create_task(second.run(work.job()))
        await eventually(lambda: work.started == 2)
        assert (work.at_once, work.broken_off) == (1, 1)
        work.gate.set()
        with pytest.raises(JobLostError):
            await within_deadline(lost)
        assert await within_deadline(following) == 1
        assert work.most_at_once == 1


class TestBreakingOff:
    async def test_a_caller_that_goes_away_does_not_stop_the_run(
        self, make_runner: MakeRunner, work: Work, leases: Leases, clock: ManualClock
    ) -> None:
        caller = asyncio.create_task(make_runner("a").run(work.job()))
        await eventually(lambda: work.started == 1)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert work.at_once == 1
        assert not await leases.take("b", now=clock.now())
        work.gate.set()
        await eventually(lambda: work.finished == 1)
        async with asyncio.timeout(DEADLINE_SEC):
            while (await leases.row()).holder is not None:
                await asyncio.sleep(0.01)
        assert await finished(leases, [NAME]) == {NAME: clock.now()}

    async def test_a_run_that_fails_after_its_caller_left_is_no_unhandled_exception(
        self, make_runner: MakeRunner, leases: Leases
    ) -> None:
        unhandled: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: unhandled.append(context)
        )
        gate = asyncio.Event()
        started = asyncio.Event()

        async def fail() -> None:
            started.set()
            await gate.wait()
            raise UnavailableError

        caller = asyncio.create_task(make_runner("a").run(Job(NAME, 600, fail)))
        await within_deadline(started.wait())
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        gate.set()
        async with asyncio.timeout(DEADLINE_SEC):
            while (await leases.row()).holder is not None:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        gc.collect()
        assert unhandled == []

    async def test_stop_breaks_off_and_releases(
        self, make_runner: MakeRunner, work: Work, leases: Leases
    ) -> None:
        runner = make_runner("a")
        running = asyncio.create_task(runner.run(work.job()))
        waiting = asyncio.create_task(runner.run(work.job()))
        await eventually(lambda: work.started == 1)
        await within_deadline(runner.stop())
        assert (work.at_once, work.broken_off, work.started) == (0, 1, 1)
        for task in (running, waiting):
            with pytest.raises(asyncio.CancelledError):
                await task
        row = await leases.row()
        assert (row.holder, row.held_until, row.finished_at) == (None, None, None)
        work.gate.set()
        assert await within_deadline(make_runner("b").run(work.job())) == 1

    async def test_stop_ends_those_who_wait_for_another_process(
        self, make_runner: MakeRunner, work: Work, leases: Leases, clock: ManualClock
    ) -> None:
        assert await leases.take("other", now=clock.now())
        runner = make_runner("a")
        waiting = asyncio.create_task(runner.run(work.job()))
        await asyncio.wait([waiting], timeout=0.15)
        await within_deadline(runner.stop())
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert work.started == 0
        assert (await leases.row()).holder == "other"

    async def test_stop_with_nothing_under_way_is_at_once_over(
        self, make_runner: MakeRunner
    ) -> None:
        await within_deadline(make_runner("a").stop())

    async def test_a_cancelled_run_if_due_stops_and_releases(
        self, make_runner: MakeRunner, work: Work, leases: Leases
    ) -> None:
        running = asyncio.create_task(run_if_due(make_runner("a"), work.job()))
        await eventually(lambda: work.started == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (work.at_once, work.broken_off) == (0, 1)
        row = await leases.row()
        assert (row.holder, row.finished_at) == (None, None)

    @pytest.mark.parametrize("way", ["run", "run_if_due"])
    async def test_whenever_it_is_broken_off_no_lease_is_left_behind(
        self, make_runner: MakeRunner, work: Work, leases: Leases, clock: ManualClock, way: str
    ) -> None:
        for steps in range(40):
            runner = make_runner(f"broken-off-{steps}")
            run = getattr(runner, way)
            running = asyncio.create_task(run(work.job(interval_sec=0)))
            for _ in range(steps):
                await asyncio.sleep(0)
            if way == "run":
                await within_deadline(runner.stop())
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert work.at_once == 0
            assert await leases.take("next", now=clock.now()), f"after {steps} steps"
            await leases.release(NAME, holder="next", finished_at=None)

    @pytest.mark.parametrize("way", ["run", "run_if_due"])
    async def test_a_failing_job_releases_and_does_not_count_as_finished(
        self, make_runner: MakeRunner, work: Work, leases: Leases, clock: ManualClock, way: str
    ) -> None:
        class Trouble(Exception):  # noqa: N818 - it is somebody else's
            pass

        async def fail() -> None:
            raise Trouble

        with pytest.raises(Trouble):
            await getattr(make_runner("a"), way)(Job(NAME, 600, fail))
        row = await leases.row()
        assert (row.holder, row.held_until, row.finished_at) == (None, None, None)
        assert await finished(leases, [NAME]) == {}
        work.gate.set()
        assert await within_deadline(make_runner("b").run(work.job())) == 1
        assert await finished(leases, [NAME]) == {NAME: clock.now()}
