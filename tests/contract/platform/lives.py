"""Lives of sandboxes straight on the store, and what they must cost."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import sqlalchemy as sa

from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import utc_time
from sandyard.kit.ids import resource_id
from sandyard.platform.billing.jobs import BillingReport, MakeBills
from sandyard.platform.billing.sql import SqlBillingStore
from sandyard.platform.events.entities import platform_transitions
from sandyard.platform.quotas.model import CountQuota, QuotaRequest, ResourceKind, Resources
from sandyard.platform.sandboxes.archives.model import count_archives
from sandyard.platform.sandboxes.archives.usage import StorageUsage
from sandyard.platform.sandboxes.model import (
    Changes,
    NewSandbox,
    Sandbox,
    StartFacts,
    Status,
    approve_start,
    create_sandbox,
    update_sandbox,
)
from sandyard.platform.sandboxes.node import SandboxIds
from sandyard.platform.sandboxes.runs.end_model import End, StoredSnapshot
from sandyard.platform.sandboxes.runs.model import (
    Accounting,
    Started,
    record_end,
    record_started,
    recycle_sandbox,
)
from sandyard.platform.sandboxes.sql.store import SqlSandboxStore
from sandyard.platform.templates.model import Template
from sandyard.platform.templates.sql import SqlTemplateStore
from sandyard.platform.usage.model import PriceList, midnight
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import PlatformApi

PRICES = PriceList(Decimal("0.049999"), Decimal("0.010007"), Decimal("0.000131"))
"""Odd ones, so that hardly any cost comes out even."""
AMPLE = Resources(1000, 10_000, 10_000, 10**6)
START = 1_800_000_000
DAY = 86_400
RUNTIME, STORAGE = "sandbox_runtime", "storage"
IDS = SandboxIds()
ACTOR = "system"


@dataclass
class Life:
    """One sandbox, and the time that its owner should pay for by our own reckoning."""

    api: PlatformApi
    sandbox_id: str
    attempt: int = 0
    running: tuple[datetime, Decimal] | None = None
    kept_since: datetime | None = None
    kept_bytes: int = 0
    runs: list[tuple[datetime, datetime, Decimal]] = field(default_factory=list)
    kept_ms: int = 0
    is_recycled: bool = False
    may_run_for: timedelta = timedelta(days=7)

    @property
    def store(self) -> SqlSandboxStore:
        return sandbox_store(self.api)

    async def start(self, now: datetime, cpu: float = 1.0) -> None:
        if self.running or self.is_recycled:
            return
        assert await self.resize(cpu, now)
        assert await self.begin(AMPLE, now)
        self.running = (now, PRICES.of_running(cpu=cpu, memory_gb=1))
        run = Started(self.attempt, "http://127.0.0.1:1", now, now + self.may_run_for)
        transitions = record_started(
            await self.look(), run, Accounting(IDS.new(), PRICES, cause(now))
        )
        assert transitions is not None
        assert await self.store.apply(*transitions)

    async def resize(self, cpu: float, now: datetime) -> bool:
        """False if somebody else was faster."""
        before = await self.look()
        transition = update_sandbox(
            before,
            Changes({"cpu_spec": cpu}),
            template=await template_of(self.api, before),
            project=await self.store.find_project(before.owner_account_id, before.project_id),
            cause=cause(now),
        )
        return transition is None or await self.store.apply(transition)

    async def begin(self, quota: Resources, now: datetime) -> bool:
        """Make it `starting`; False if it is active already."""
        while True:
            before = await self.look()
            account_id = before.owner_account_id
            request = QuotaRequest(account_id, before.cpu_spec, before.memory_spec, quota)
            facts = StartFacts(
                before,
                await template_of(self.api, before),
                await self.store.find_project(account_id, before.project_id),
            )
            approved = approve_start(facts, await self.store.check_quota(request))
            if approved is None:
                return False
            transition = approved.begin(node="n", cause=cause(now))
            if await self.store.apply(transition):
                self.attempt = transition.result.attempt
                return True

    async def end(self, now: datetime, size: int | None = None, delay: float = 0) -> None:
        """It ended some seconds ago, and now that is recorded."""
        if self.running is None:
            return
        started_at, rate = self.running
        ended_at = max(started_at, now - timedelta(seconds=delay))
        assert await self.record_end(ended_at, size)
        self.runs.append((started_at, min(ended_at, started_at + self.may_run_for), rate))
        self.running = None
        if size is not None:
            self.give_up(ended_at)
            self.kept_since, self.kept_bytes = ended_at, size

    async def record_end(self, ended_at: datetime, size: int | None = None) -> bool:
        snapshot = None
        if size is not None:
            name = f"snap-{self.sandbox_id}-{self.attempt}"
            snapshot = StoredSnapshot(name, size, ended_at + timedelta(days=30))
        end = End(self.attempt, Status.STOPPED, "stopped", ended_at, snapshot)
        while found := await self.store.find_with_usage(self.sandbox_id):
            transitions = record_end(*found, end, Accounting(IDS.new(), PRICES, cause(ended_at)))
            if transitions is None or await self.store.apply(*transitions):
                return transitions is not None
        raise AssertionError("it is gone")

    async def recycle(self, now: datetime) -> None:
        if self.running or self.is_recycled:
            return
        before = await self.look()
        transitions = recycle_sandbox(before, Accounting(IDS.new(), PRICES, cause(now)))
        assert transitions is not None
        assert await self.store.apply(*transitions)
        self.give_up(now)
        self.is_recycled = True

    def give_up(self, until: datetime) -> None:
        if self.kept_since is not None:
            self.kept_ms += milliseconds_between(self.kept_since, until)
        self.kept_since, self.kept_bytes = None, 0

    async def look(self) -> Sandbox:
        found = await self.store.find(self.sandbox_id)
        assert found is not None
        return found


def cause(now: datetime) -> Cause:
    return Cause(ACTOR, round(now.timestamp() * 1000))


def sandbox_store(api: PlatformApi) -> SqlSandboxStore:
    return SqlSandboxStore(api.part.database, platform_transitions(api.part.database))


def template_store(api: PlatformApi) -> SqlTemplateStore:
    return SqlTemplateStore(api.part.database, platform_transitions(api.part.database))


async def template_of(api: PlatformApi, sandbox: Sandbox) -> Template | None:
    return await template_store(api).find(sandbox.owner_account_id, sandbox.template_id)


def milliseconds_between(start: datetime, end: datetime) -> int:
    return (end - start) // timedelta(milliseconds=1)


def price(seconds: int | Fraction, rate: Decimal) -> Decimal:
    """Half to even at the sixth place, without a decimal in between."""
    return Decimal(round(Fraction(rate) * seconds * 10**6 / 3600)).scaleb(-6)


def counted_ms(usage: Any, until: datetime) -> int:
    """A run counts for a second at least, as soon as it has begun."""
    if until <= usage.start_time and until < usage.end_time:
        return 0
    least = 1000 if usage.service_type == RUNTIME else 0
    return max(least, milliseconds_between(usage.start_time, min(until, usage.end_time)))


async def life(api: PlatformApi, account_id: str, template_id: str, **changes: Any) -> Life:
    values = {
        "project_id": None,
        "description": None,
        "cpu_spec": 1.0,
        "memory_spec": 1.0,
    } | changes
    name = resource_id("sbx")
    new = NewSandbox(name=name, template_id=template_id, max_running_seconds=7 * DAY, **values)
    store = sandbox_store(api)
    made = create_sandbox(
        new,
        sandbox_id=name,
        account_id=account_id,
        template=await template_store(api).find(account_id, template_id),
        project=await store.find_project(account_id, new.project_id),
        quota=await store.read_fact(CountQuota(ResourceKind.SANDBOXES, account_id, 1000)),
        cause=cause(utc_time(api.clock.now())),
    )
    assert await store.apply(made)
    return Life(api, name)


async def bill(api: PlatformApi, clock: ManualClock) -> BillingReport:
    database = api.part.database
    transitions = platform_transitions(database)
    job = MakeBills(
        SqlBillingStore(database, transitions),
        sandbox_store(api),
        clock=clock,
        prices=PRICES,
        ids=IDS,
        stored=[
            StorageUsage(
                template_store(api), count_archives, prices=PRICES, make_usage_id=IDS.usage
            )
        ],
    )
    return await job.run()


async def rows_of(api: PlatformApi, table: sa.Table, ids: Sequence[str]) -> Sequence[Any]:
    statement = sa.select(table).where(table.c.sandbox_id.in_(ids)).order_by(table.c.id)
    return await api.part.database.read(lambda connection: connection.execute(statement).all())


def rate_of(usage: Any) -> Decimal:
    """Not rounded."""
    rate: Decimal = usage.hourly_rate if usage.exact_rate is None else usage.exact_rate
    return rate


def reckon_sums(usages: Sequence[Any], bills: Sequence[Any]) -> None:
    """By account and service: what is billed is what was used is milliseconds by the rate."""
    billed, used, reckoned = (defaultdict[Any, Decimal](Decimal) for _ in range(3))
    for bill in bills:
        billed[bill.user_account_id, bill.service_type] += bill.amount
    for usage in usages:
        key = usage.user_account_id, usage.service_type
        counted = counted_ms(usage, usage.end_time)
        assert usage.milliseconds == counted
        used[key] += usage.cost
        reckoned[key] += price(Fraction(counted, 1000), rate_of(usage))
        assert usage.is_billed
    assert used == reckoned
    assert {key: billed[key] for key in used} == used


def reckon_days(usages: Sequence[Any], bills: Sequence[Any]) -> None:
    """Each bill is about one UTC day, and with its corrections about all that the usage has of
    it."""
    by_id = {usage.usage_id: usage for usage in usages}
    firsts = {bill.billing_id: bill for bill in bills if bill.corrects is None}
    assert len({(each.usage_id, each.billing_date) for each in firsts.values()}) == len(firsts)
    days = defaultdict[tuple[str, date], Counter[str]](Counter)
    for bill in bills:
        first, usage = firsts[bill.corrects or bill.billing_id], by_id[bill.usage_id]
        found = {"seconds": bill.usage_seconds, "milliseconds": bill.usage_milliseconds}
        days[bill.usage_id, bill.billing_date].update(found)
        assert (bill.usage_id, bill.billing_date) == (first.usage_id, first.billing_date)
        assert (bill.service_type, bill.hourly_rate) == (usage.service_type, usage.hourly_rate)
    for (usage_id, day), billed in days.items():
        usage, begin = by_id[usage_id], midnight(day)
        before, after = (
            counted_ms(usage, min(at, usage.end_time)) if at > usage.start_time else 0
            for at in (begin, begin + timedelta(days=1))
        )
        assert billed["milliseconds"] == after - before
        assert billed["seconds"] == after // 1000 - before // 1000


def reckon_life(life: Life, usages: Sequence[Any]) -> None:
    """What is on record is what happened, no millisecond of it twice."""
    runs = [
        (usage.start_time, usage.end_time, rate_of(usage))
        for usage in usages
        if usage.service_type == RUNTIME
    ]
    assert Counter(runs) == Counter(life.runs)
    kept = [(each.start_time, each.end_time) for each in usages if each.service_type == STORAGE]
    kept.sort()
    assert all(before[1] <= after[0] for before, after in pairwise(kept))
    stored_ms = sum(milliseconds_between(*each) for each in kept)
    assert 0 <= life.kept_ms - stored_ms <= len(kept), "each part is cut to milliseconds"
