"""Jobs under leases on the real engines: one run at a time, whoever dies, hangs or is stopped."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest
import sqlalchemy as sa

from sandyard.broker.stores import tables
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.kit.clock import SystemClock
from sandyard.kit.errors import UnavailableError
from sandyard.kit.jobs import Job, JobLeases, JobLostError, JobRunner
from sandyard.kit.jobs_dynamo import DynamoJobLeases
from sandyard.kit.jobs_sql import SqlJobLeases
from sandyard.kit.sql import Database
from tests.clocks import ManualClock
from tests.engines import STORE_ENGINES, broker_database, pool_table
from tests.integration.conftest import eventually

NAME = "sync"
LEASE_SEC = 60.0
DEADLINE_SEC = 20


@dataclass
class Work:
    """A job's work that goes on until its gate is opened, and knows how often it overlapped."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    started: int = 0
    finished: int = 0
    broken_off: int = 0
    at_once: int = 0
    most_at_once: int = 0

    async def __call__(self) -> int:
        self.started += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.gate.wait()
            await asyncio.sleep(0.01)  # long enough that a run beside it would be seen
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        finally:
            self.at_once -= 1
        self.finished += 1
        return self.finished

    def job(self, *, interval_sec: float = 600) -> Job[int]:
        return Job(NAME, interval_sec, self)


@dataclass
class Row:
    """What the engine holds about the job."""

    holder: str | None = None
    held_until: float | None = None
    started_at: float | None = None
    finished_at: float | None = None


class Leases:
    """The real leases of an engine, with a look at what they hold."""

    def __init__(self, real: JobLeases, look: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        self._real = real
        self._look = look
        self.release = real.release
        self.finished = real.finished

    @classmethod
    def like(cls, leases: "Leases") -> Self:
        return cls(leases._real, leases._look)

    async def acquire(
        self,
        job: str,
        *,
        holder: str,
        now: float,
        held_until: float,
        unless_started_after: float | None = None,
    ) -> bool:
        return await self._real.acquire(
            job,
            holder=holder,
            now=now,
            held_until=held_until,
            unless_started_after=unless_started_after,
        )

    async def renew(self, job: str, *, holder: str, held_until: float) -> bool:
        return await self._real.renew(job, holder=holder, held_until=held_until)

    async def take(self, holder: str, *, now: float, held_until: float | None = None) -> bool:
        return await self.acquire(
            NAME,
            holder=holder,
            now=now,
            held_until=now + LEASE_SEC if held_until is None else held_until,
        )

    async def row(self) -> Row:
        found = await self._look()
        return Row(**{name: found.get(name) for name in Row.__dataclass_fields__})


class CutOffLeases(Leases):
    """Leases whose engine does not answer renewals any more."""

    renewals = 0

    async def renew(self, job: str, *, holder: str, held_until: float) -> bool:  # noqa: ARG002
        self.renewals += 1
        raise UnavailableError


class HangingLeases(Leases):
    """Leases whose renewals never come back."""

    async def renew(self, job: str, *, holder: str, held_until: float) -> bool:  # noqa: ARG002
        await asyncio.sleep(3600)
        return True


MakeRunner = Callable[..., JobRunner]


@pytest.fixture(params=STORE_ENGINES)
async def leases(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[Leases]:
    if request.param == "dynamodb":
        async with pool_table(dynamo_url) as pool:
            yield dynamo_leases(pool)
        return
    async with broker_database(request.param, tmp_path, postgres_url) as database:
        yield sql_leases(database)


def sql_leases(database: Database) -> Leases:
    statement = sa.select(tables.jobs).where(tables.jobs.c.job == NAME)

    def select(connection: sa.Connection) -> Mapping[str, Any]:
        return dict(connection.execute(statement).mappings().one())

    return Leases(SqlJobLeases(database, tables.jobs), lambda: database.read(select))


def dynamo_leases(pool: PoolTable) -> Leases:
    async def look() -> Mapping[str, Any]:
        item = await pool.table.get({"PK": f"JOB#{NAME}", "SK": "META"})
        assert item is not None
        return item

    return Leases(DynamoJobLeases(pool.table), look)


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
async def make_runner(leases: Leases, clock: ManualClock) -> AsyncIterator[MakeRunner]:
    """Runners as so many processes would have them; whatever still runs is stopped at the end."""
    runners: list[JobRunner] = []

    def make(holder: str, **changes: Any) -> JobRunner:
        runner = JobRunner(
            changes.get("leases", leases),
            clock=changes.get("clock", clock),
            holder=holder,
            lease_sec=changes.get("lease_sec", LEASE_SEC),
        )
        runners.append(runner)
        return runner

    yield make
    for runner in runners:
        await runner.stop()


async def run_if_due(runner: JobRunner, job: Job[int]) -> int | None:
    return await runner.run_if_due(job)


async def within_deadline(result: Awaitable[Any]) -> Any:
    async with asyncio.timeout(DEADLINE_SEC):
        return await result


class TestLeases:
    async def test_a_lease_has_one_holder_until_its_time_is_over(self, leases: Leases) -> None:
        assert await leases.take("a", now=100, held_until=160)
        assert not await leases.take("b", now=100)
        assert not await leases.take("b", now=159.999)
        assert await leases.take("b", now=160)

    async def test_a_holder_does_not_get_it_twice(self, leases: Leases) -> None:
        assert await leases.take("a", now=100, held_until=160)
        assert not await leases.take("a", now=101)

    async def test_of_many_who_ask_at_once_one_gets_it(self, leases: Leases) -> None:
        for now in (100.0, 1000.0):
            taken = await asyncio.gather(
                *(leases.take(f"holder-{n}", now=now, held_until=now + 60) for n in range(50))
            )
            assert sum(taken) == 1
            assert (await leases.row()).holder == f"holder-{taken.index(True)}"

    async def test_jobs_are_leased_one_by_one(self, leases: Leases) -> None:
        for job in ("sync", "cleanup", "expiry"):
            assert await leases.acquire(job, holder="a", now=100, held_until=160)

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
        assert await leases.finished([NAME]) == {}
        await leases.release(NAME, holder="a", finished_at=110)
        assert await leases.finished([NAME]) == {NAME: 110}
        assert not await leases.renew(NAME, holder="a", held_until=500)
        assert await leases.take("b", now=110)

    async def test_a_run_that_did_not_come_to_its_end_leaves_the_last_success_as_it_was(
        self, leases: Leases
    ) -> None:
        await leases.take("a", now=100)
        await leases.release(NAME, holder="a", finished_at=110)
        await leases.take("a", now=200)
        await leases.release(NAME, holder="a", finished_at=None)
        assert await leases.finished([NAME]) == {NAME: 110}

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

    async def test_run_waits_until_then(
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

    async def test_one_that_comes_back_finds_its_lease_lost(
        self, leases: Leases, clock: ManualClock
    ) -> None:
        now = clock.now()
        assert await leases.take("late", now=now, held_until=now + 60)
        assert await leases.take("next", now=now + 60, held_until=now + 120)
        assert not await leases.renew(NAME, holder="late", held_until=now + 500)
        await leases.release(NAME, holder="late", finished_at=now + 61)
        row = await leases.row()
        assert (row.holder, row.held_until, row.finished_at) == ("next", now + 120, None)


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
        assert await leases.finished([NAME]) == {}

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

    async def test_one_whose_renewal_hangs_has_stopped_when_the_next_begins(
        self, make_runner: MakeRunner, work: Work, leases: Leases
    ) -> None:
        clock = SystemClock()
        first = make_runner("first", leases=HangingLeases.like(leases), clock=clock, lease_sec=0.6)
        second = make_runner("second", clock=clock, lease_sec=0.6)
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
        assert await leases.finished([NAME]) == {NAME: clock.now()}

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
        assert await leases.finished([NAME]) == {}
        work.gate.set()
        assert await within_deadline(make_runner("b").run(work.job())) == 1
        assert await leases.finished([NAME]) == {NAME: clock.now()}
