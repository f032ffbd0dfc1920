"""Money: whatever runs, ends, is kept and is billed when, each second is paid for exactly once."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from sandyard.kit.clock import utc_time
from sandyard.kit.ids import resource_id
from sandyard.platform.billing.jobs import BillingReport, MakeBills
from sandyard.platform.billing.sql import SqlBillingStore
from sandyard.platform.notifications.model import Notice, NotificationType
from sandyard.platform.sandboxes.errors import QuotaExceededError
from sandyard.platform.sandboxes.model import End, NewSandbox, Quota, Sandbox, Status
from sandyard.platform.sandboxes.sql import SqlSandboxStore
from sandyard.platform.tables import billing_records, sandbox_usage
from sandyard.platform.usage.model import PriceList
from tests.clocks import ManualClock
from tests.contract.platform.test_isolation import key_of
from tests.engines import SQL_ENGINES
from tests.platforms import Caller, MigratedEngines, PlatformApi, platform_api
from tests.sandboxes import add_template

PRICES = PriceList(Decimal("0.049999"), Decimal("0.010007"), Decimal("0.000131"))
"""Odd ones, so that hardly any cost comes out even."""
ROOM = Quota(1000, 10_000, 10_000)
START = 1_800_000_000
DAY = 86_400
RUNTIME, STORAGE = "sandbox_runtime", "storage"
NOTICE = Notice("it ended", "it ended", NotificationType.INFO)

boxes = st.sampled_from([0, 0, 0, 1, 1, 2])
sizes = st.sampled_from([77 * 10**9, 3 * 10**9, 999_999_999, 1, None])
delays = st.sampled_from([0, 0.25, 7, 3600, 2 * DAY])
steps = st.one_of(
    st.tuples(st.just("start"), boxes, st.sampled_from([1.0, 1.5, 8.0])),
    st.tuples(st.just("end"), boxes, sizes, delays),
    st.tuples(st.just("recycle"), st.just(2)),
    st.tuples(st.just("wait"), st.sampled_from([0.4, 1, 59.7, 3601, 50_000, 3 * DAY])),
    st.tuples(st.just("midnight"), st.sampled_from([1, 0.001, 0, -0.5])),
    st.tuples(st.just("bill")),
    st.tuples(st.just("midnight"), st.sampled_from([1, 0])).map(lambda night: (*night, "bill")),
)
"""An end may be recorded late; midnight is waited for, or nearly, or a little longer, and it may
be billed right then. Some sandboxes live more than others, so that more happens to them."""


@dataclass
class Life:
    """One sandbox, and the seconds that its owner should pay for by our own reckoning."""

    store: SqlSandboxStore
    sandbox_id: str
    attempt: int = 0
    running: tuple[datetime, Decimal] | None = None
    kept_since: datetime | None = None
    kept_bytes: int = 0
    runs: list[tuple[datetime, datetime, Decimal]] = field(default_factory=list)
    kept_seconds: int = 0
    is_recycled: bool = False

    async def start(self, now: datetime, cpu: float = 1.0) -> None:
        if self.running or self.is_recycled:
            return
        before = await self.look(now)
        self.attempt = before.attempt + 1
        assert await self.store.begin(before, attempt=self.attempt, node="n", quota=ROOM, now=now)
        self.running = (now, PRICES.of_running(cpu=cpu, memory_gb=1))
        assert await self.store.record_running(
            self.sandbox_id,
            attempt=self.attempt,
            usage_id=resource_id("usg"),
            url="http://127.0.0.1:1",
            hourly_rate=self.running[1],
            started_at=now,
            timeout_at=now + timedelta(days=7),
        )

    async def end(self, now: datetime, size: int | None = None, delay: float = 0) -> None:
        """It ended some seconds ago, and now that is recorded."""
        if self.running is None:
            return
        started_at, rate = self.running
        ended_at = max(started_at, now - timedelta(seconds=delay))
        assert await self.record_end(ended_at, size)
        self.runs.append((started_at, ended_at, rate))
        self.running = None
        if size is not None:
            self.give_up(ended_at)
            self.kept_since, self.kept_bytes = ended_at, size

    async def record_end(self, ended_at: datetime, size: int | None = None) -> bool:
        snapshot = (f"snap-{self.sandbox_id}-{self.attempt}", size, ended_at + timedelta(days=30))
        end = End(Status.STOPPED, "stopped", ended_at, *(snapshot if size is not None else ()))
        return await self.store.record_end(
            self.sandbox_id,
            attempt=self.attempt,
            end=end,
            usage_id=resource_id("usg"),
            storage_rate=PRICES.of_keeping(size_bytes=self.kept_bytes),
            notice=NOTICE,
        )

    async def recycle(self, now: datetime) -> None:
        if self.running or self.is_recycled:
            return
        rate = PRICES.of_keeping(size_bytes=self.kept_bytes)
        usage_id = resource_id("usg")
        before = await self.look(now)
        assert await self.store.recycle(before, now=now, usage_id=usage_id, storage_rate=rate)
        self.give_up(now)
        self.is_recycled = True

    def give_up(self, until: datetime) -> None:
        if self.kept_since is not None:
            self.kept_seconds += seconds_between(self.kept_since, until)
        self.kept_since, self.kept_bytes = None, 0

    async def look(self, now: datetime) -> Sandbox:
        found = await self.store.find(self.sandbox_id, account_id=None, now=now)
        assert found is not None
        return found


def seconds_between(start: datetime, end: datetime) -> int:
    """Whole seconds of the clock."""
    return int((end.replace(microsecond=0) - start.replace(microsecond=0)).total_seconds())


def price(seconds: int, rate: Decimal) -> Decimal:
    """Half to even at the sixth place, without a decimal in between."""
    return Decimal(round(Fraction(rate) * seconds * 10**6 / 3600)).scaleb(-6)


async def life(api: PlatformApi, account_id: str, template_id: str, **changes: Any) -> Life:
    values = {
        "project_id": None,
        "description": None,
        "cpu_spec": 1.0,
        "memory_spec": 1.0,
    } | changes
    name = resource_id("sbx")
    new = NewSandbox(name=name, template_id=template_id, max_running_seconds=7 * DAY, **values)
    store = SqlSandboxStore(api.part.database)
    now = utc_time(api.clock.now())
    await store.add(new, sandbox_id=name, account_id=account_id, now=now)
    return Life(store, name)


async def bill(api: PlatformApi, clock: ManualClock) -> BillingReport:
    job = MakeBills(
        SqlBillingStore(api.part.database),
        clock=clock,
        prices=PRICES,
        make_billing_id=partial(resource_id, "bil"),
        make_usage_id=partial(resource_id, "usg"),
    )
    return await job.run()


async def rows_of(api: PlatformApi, table: sa.Table, ids: Sequence[str]) -> Sequence[Any]:
    statement = sa.select(table).where(table.c.sandbox_id.in_(ids)).order_by(table.c.id)
    return await api.part.database.read(lambda connection: connection.execute(statement).all())


async def live(api: PlatformApi, taken: Sequence[tuple[Any, ...]], template_id: str) -> None:
    """Take the steps, end what is left, make the last bills, and reckon."""
    clock = ManualClock(START)
    accounts = [(await api.account()).account_id for _ in range(2)]
    lives = [await life(api, accounts[number % 2], template_id) for number in range(3)]
    for action, *values in taken:
        now = utc_time(clock.now())
        if action == "wait":
            clock.advance(*values)
        elif action == "midnight":
            clock.advance(DAY - clock.now() % DAY + values[0])
        if "bill" in (action, *values):
            await bill(api, clock)
        elif action in ("start", "end", "recycle"):
            await getattr(lives[values[0]], action)(now, *values[1:])
    ids = [each.sandbox_id for each in lives]
    usages = await rows_of(api, sandbox_usage, ids)
    open_ones = sorted(usage.sandbox_id for usage in usages if usage.end_time is None)
    assert open_ones == sorted(each.sandbox_id for each in lives if each.running)
    for each in lives:
        await each.end(utc_time(clock.now()))
        await each.recycle(utc_time(clock.now()))
    await bill(api, clock)
    usages, bills = [await rows_of(api, each, ids) for each in (sandbox_usage, billing_records)]
    again = await bill(api, clock)
    assert (again.bills, again.usages, again.storage_counted) == (0, 0, 0)
    assert await rows_of(api, billing_records, ids) == bills
    reckon_sums(usages, bills)
    reckon_days(usages, bills)
    for each in lives:
        reckon_life(each, [usage for usage in usages if usage.sandbox_id == each.sandbox_id])


def reckon_sums(usages: Sequence[Any], bills: Sequence[Any]) -> None:
    """By account and service: what is billed is what was used is seconds by the rate."""
    billed, used, reckoned = (defaultdict[Any, Decimal](Decimal) for _ in range(3))
    for bill in bills:
        billed[bill.user_account_id, bill.service_type] += bill.amount
    for usage in usages:
        key = usage.user_account_id, usage.service_type
        seconds = seconds_between(usage.start_time, usage.end_time)
        used[key] += usage.cost
        reckoned[key] += price(seconds, usage.hourly_rate)
        assert usage.is_billed
    assert used == reckoned
    assert {key: billed[key] for key in used} == used


def reckon_days(usages: Sequence[Any], bills: Sequence[Any]) -> None:
    """Each bill is about one UTC day, and about all that the usage has of it."""
    by_id = {usage.usage_id: usage for usage in usages}
    assert len({(bill.usage_id, bill.billing_date) for bill in bills}) == len(bills)
    for bill in bills:
        usage = by_id[bill.usage_id]
        assert bill.billing_date.timestamp() % DAY == 0
        day_end = bill.billing_date + timedelta(days=1)
        first, last = max(bill.billing_date, usage.start_time), min(day_end, usage.end_time)
        assert bill.usage_seconds == seconds_between(first, last) > 0
        assert (bill.service_type, bill.hourly_rate) == (usage.service_type, usage.hourly_rate)


def reckon_life(life: Life, usages: Sequence[Any]) -> None:
    """What is on record is what happened, no second of it twice."""
    runs = [
        (usage.start_time, usage.end_time, usage.hourly_rate)
        for usage in usages
        if usage.service_type == RUNTIME
    ]
    assert Counter(runs) == Counter(life.runs)
    kept = [(each.start_time, each.end_time) for each in usages if each.service_type == STORAGE]
    kept.sort()
    assert all(before[1] <= after[0] for before, after in pairwise(kept))
    assert sum(seconds_between(*each) for each in kept) == life.kept_seconds


@pytest.mark.parametrize("engine", SQL_ENGINES)
def test_bills_are_usage_is_seconds_by_the_rate(
    engine: str, migrated: MigratedEngines, tmp_path: Path
) -> None:
    with asyncio.Runner() as runner:
        url = runner.run(migrated.copy(engine, tmp_path))
        context = platform_api(url, tmp_path, ManualClock(START))
        api = runner.run(context.__aenter__())
        template_id = runner.run(add_template(api))

        @settings(max_examples=30, deadline=None)
        @given(st.lists(steps, min_size=20, max_size=40))
        def check(taken: Sequence[tuple[Any, ...]]) -> None:
            runner.run(live(api, taken, template_id))

        try:
            check()
        finally:
            runner.run(context.__aexit__(None, None, None))


@pytest.fixture(params=SQL_ENGINES)
async def replicas(
    request: pytest.FixtureRequest, migrated: MigratedEngines, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Sequence[PlatformApi]]:
    """The Platform twice on one engine; SQLite serves one process, so there it is the same."""
    url = await migrated.copy(request.param, tmp_path)
    async with platform_api(url, tmp_path, clock) as one:
        if url is None:
            yield one, one
            return
        async with platform_api(url, tmp_path, clock) as other:
            yield one, other


async def test_of_two_ends_at_once_one_is_recorded(replicas: Sequence[PlatformApi]) -> None:
    api, other = replicas
    ann, template_id = await api.account(), await add_template(api)
    for _ in range(5):
        box = await life(api, ann.account_id, template_id)
        now = utc_time(api.clock.now())
        assert await rows_of(api, sandbox_usage, [box.sandbox_id]) == []
        await box.start(now)
        [usage] = await rows_of(api, sandbox_usage, [box.sandbox_id])
        assert (usage.start_time, usage.end_time) == (now, None)
        same = Life(SqlSandboxStore(other.part.database), box.sandbox_id, box.attempt)
        outcomes = await asyncio.gather(
            *(each.record_end(now + timedelta(seconds=10), 5) for each in (box, same) * 2)
        )
        assert sorted(outcomes) == [False, False, False, True]
        [usage] = await rows_of(api, sandbox_usage, [box.sandbox_id])
        assert usage.cost == price(10, usage.hourly_rate)
        assert (await box.look(now)).status is Status.STOPPED
    told = (await api.get("/notifications", ann))["notifications"]
    assert len([each for each in told if each["title"] == NOTICE.title]) == 5


async def test_starts_at_once_do_not_exceed_the_quota(replicas: Sequence[PlatformApi]) -> None:
    ann, bob = [await replicas[0].account() for _ in range(2)]
    template_id = await add_template(replicas[0])
    for quota in (Quota(3, 99, 99), Quota(99, 3, 99), Quota(99, 99, 3.5)):
        made = [await life(replicas[n % 2], ann.account_id, template_id) for n in range(10)]
        now = utc_time(replicas[0].clock.now())
        befores = [await each.look(now) for each in made]
        outcomes = await asyncio.gather(
            *(
                each.store.begin(before, attempt=1, node="n", quota=quota, now=now)
                for each, before in zip(made, befores, strict=True)
            ),
            return_exceptions=True,
        )
        assert outcomes.count(True) == 3
        assert len([each for each in outcomes if isinstance(each, QuotaExceededError)]) == 7
        theirs = await life(replicas[1], bob.account_id, template_id)
        before = await theirs.look(now)
        assert await theirs.store.begin(before, attempt=1, node="n", quota=quota, now=now)
        for each in (*made, theirs):
            each.attempt = 1
            await each.record_end(now)


async def test_an_account_is_told_of_its_spending_once_a_month(
    replicas: Sequence[PlatformApi],
) -> None:
    api, other = replicas
    ann, template_id = await key_of(api, await api.account()), await add_template(api)
    await api.call("PATCH", "/me", ann, json={"spend_threshold": "0.120012"})
    box = await life(api, ann.account_id, template_id)
    await box.start(utc_time(api.clock.now()))  # at 0.060006 an hour
    hours_left = 14  # of the month, after the first line
    for seconds, told in (
        *((7199, 0), (1, 1), (DAY, 1), (15 * DAY, 1)),
        *((hours_left * 3600, 1), (7199, 1), (1, 2), (DAY, 2)),
    ):
        api.clock.advance(seconds)
        await asyncio.gather(*(bill(each, api.clock) for each in (api, other)))
        assert await spend_notices(api, ann) == told, seconds
    await box.end(utc_time(api.clock.now()))
    api.clock.advance(40 * DAY)
    await bill(api, api.clock)
    assert await spend_notices(api, ann) == 2, "nothing was spent since"


async def spend_notices(api: PlatformApi, caller: Caller) -> int:
    told = (await api.get("/notifications", caller))["notifications"]
    return len([each for each in told if "threshold" in each["title"]])


async def test_kept_files_are_billed_as_storage_by_the_day(api: PlatformApi) -> None:
    ann = await key_of(api, await api.account())
    box = await life(api, ann.account_id, await add_template(api))
    await box.start(utc_time(api.clock.now()))
    api.clock.advance(14 * 3600)  # 22:00 of the first day
    await box.end(utc_time(api.clock.now()), 10 * 10**9)
    rate = Decimal("0.001310")
    bills: list[tuple[str, int, Decimal]] = []
    for hours, days in ((1, []), (2, ["15"]), (47, ["16", "17"]), (24, ["18"])):
        api.clock.advance(hours * 3600)
        await bill(api, api.clock)
        for day in days:
            seconds = 7200 if day == "15" else DAY
            bills.insert(0, (f"2027-01-{day}", seconds, price(seconds, rate)))
        assert await storage_bills(api, ann) == bills
    await box.recycle(utc_time(api.clock.now()))  # at 0:00 of the fifth day
    api.clock.advance(5 * DAY)
    await bill(api, api.clock)
    assert await storage_bills(api, ann) == bills
    stored = await rows_of(api, sandbox_usage, [box.sandbox_id])
    assert sum(each.storage_hours for each in stored) == pytest.approx(10 * 74)
    assert {each.running_seconds for each in stored if each.service_type == STORAGE} == {0}
    sums = (await api.get("/billing/summary", ann, by="service_type"))["sums"]
    shown = {each["key"]: Decimal(each["amount"]) for each in sums}
    assert shown[STORAGE] == sum(amount for _, _, amount in bills) == price(74 * 3600, rate)


async def storage_bills(api: PlatformApi, caller: Caller) -> list[tuple[str, int, Decimal]]:
    found = (await api.get("/billing", caller, service_type=STORAGE))["bills"]
    return [
        (each["billing_date"], each["usage_seconds"], Decimal(each["amount"])) for each in found
    ]


@pytest.mark.parametrize("size", [None, 10**12])
async def test_an_end_that_is_recorded_after_midnight_counts_when_it_was(
    api: PlatformApi, size: int | None
) -> None:
    """As when the machine that it ran on was away over midnight, and billing ran elsewhere."""
    ann = await api.account()
    box = await life(api, ann.account_id, await add_template(api))
    for delay in (0, 20 * 3600):
        await box.start(utc_time(api.clock.now()))
        api.clock.advance(DAY)
        await bill(api, api.clock)
        await box.end(utc_time(api.clock.now()), size, delay)
    await box.recycle(utc_time(api.clock.now()))
    await bill(api, api.clock)
    usages = await rows_of(api, sandbox_usage, [box.sandbox_id])
    reckon_life(box, usages)
    reckon_sums(usages, await rows_of(api, billing_records, [box.sandbox_id]))
