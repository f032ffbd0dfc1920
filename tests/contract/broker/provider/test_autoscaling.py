"""A pool that keeps its size, tells when it runs low, and makes nothing twice, on every engine."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.model import Claim, Status
from sandyard.broker.pool.ports import PoolCounts, PoolStore
from sandyard.broker.provider.errors import ProviderUnavailableError
from sandyard.broker.provider.model import SETTLE_SEC, Autoscaler, AutoscalingPolicy
from sandyard.broker.provider.service import PoolAutoscaler
from sandyard.broker.reservations.model import Booking
from sandyard.broker.verification import verify
from sandyard.kit.changes.events import EventQuery
from tests.fakes.provider import FakeProvider
from tests.support.broker.pools import check_invariants, everything, fill
from tests.support.broker.services import new_assigner, new_reservations, new_sync
from tests.support.clocks import ManualClock


class OldCounts:
    """The store, with counts that are taken only so often."""

    def __init__(self, store: PoolStore, clock: ManualClock, *, age_sec: float | None) -> None:
        self._store = store
        self._clock = clock
        self._age_sec = age_sec
        """None: they are taken each time."""
        self._taken: PoolCounts | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def counts(self) -> PoolCounts:
        if self._age_sec is None:
            return replace(await self._store.counts(), counted_at=None)
        now = int(self._clock.now())
        if self._taken is None or now >= (self._taken.counted_at or 0) + self._age_sec:
            self._taken = replace(await self._store.counts(), counted_at=now)
        return self._taken


class Kept:
    def __init__(self, store: PoolStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.provider = FakeProvider()
        self.numbers = itertools.count()
        self.policy = AutoscalingPolicy(
            min_available=3, max_total=10, low_available=1, per_hour=100
        )

    @property
    def autoscaler(self) -> PoolAutoscaler:
        return PoolAutoscaler(
            self.store,
            self.provider,
            clock=self.clock,
            policy=self.policy,
            lab_duration_hours=4,
            assigner=new_assigner(self.store, clock=self.clock),
        )

    @property
    def now(self) -> int:
        return int(self.clock.now())

    async def available(self) -> int:
        return (await self.store.counts()).by_status[Status.AVAILABLE]

    async def lease(self, count: int) -> None:
        for _ in range(count):
            name = f"track-{next(self.numbers)}"
            assert await self.store.claim(Claim(name, name, self.now))

    async def kinds(self) -> list[str]:
        query = EventQuery(subject="autoscaler")
        page = await self.store.events.page(query, limit=100, cursor=None)
        return [each.event.kind for each in reversed(page.items)]

    async def check(self) -> None:
        await check_invariants(self.store)
        assert (await verify(self.store)).problems == []


@pytest.fixture
def kept(store: PoolStore, clock: ManualClock) -> Kept:
    exact: Any = OldCounts(store, clock, age_sec=None)
    return Kept(exact, clock)


async def test_it_creates_nothing_twice_because_the_counts_are_old(
    store: PoolStore, clock: ManualClock
) -> None:
    old: Any = OldCounts(store, clock, age_sec=15)
    kept = Kept(old, clock)
    created = []
    for _ in range(12):
        created.append((await kept.autoscaler.run()).created)
        clock.advance(2)
    assert created == [3, *[0] * 11]
    assert len(kept.provider.sandboxes) == 3
    await kept.lease(2)
    clock.advance(15)
    assert (await kept.autoscaler.run()).created == 2


async def test_it_creates_what_is_missing_and_no_more(kept: Kept) -> None:
    report = await kept.autoscaler.run()
    assert (report.missing, report.created) == (3, 3)
    assert await kept.available() == len(kept.provider.sandboxes) == 3
    assert (await kept.autoscaler.run()).created == 0
    await kept.lease(2)
    assert (await kept.autoscaler.run()).created == 2
    await kept.check()


async def test_it_stops_at_the_largest_size_and_at_the_hours_budget(kept: Kept) -> None:
    kept.policy = AutoscalingPolicy(min_available=5, max_total=3, per_hour=2)
    assert (await kept.autoscaler.run()).created == 2, "that is the budget"
    assert (await kept.autoscaler.run()).created == 0
    kept.clock.advance(3600)
    assert (await kept.autoscaler.run()).created == 1, "then it is full"
    kept.clock.advance(3600)
    assert (await kept.autoscaler.run()).created == 0


async def test_what_a_lost_answer_has_made_is_adopted_and_not_made_again(kept: Kept) -> None:
    kept.provider.loses_creations = True
    assert (await kept.autoscaler.run()).created == 0
    assert len(kept.provider.sandboxes) == 1, "it stops at the first that fails"
    kept.provider.loses_creations = False
    kept.clock.advance(3600)
    report = await kept.autoscaler.run()
    assert (report.adopted, report.created) == (1, 2)
    assert await kept.available() == len(kept.provider.sandboxes) == 3
    await kept.check()


async def test_what_was_never_made_is_forgotten_after_a_while(kept: Kept) -> None:
    kept.provider.creations_left = 0
    await kept.autoscaler.run()
    found = await kept.store.find_single(Autoscaler)
    assert found is not None
    assert len(found.names) == 1
    kept.provider.creations_left = 100
    kept.clock.advance(SETTLE_SEC)
    assert (await kept.autoscaler.run()).created == 3
    found = await kept.store.find_single(Autoscaler)
    assert found is not None
    assert found.names == []


async def test_after_a_failure_it_waits_longer_each_time(kept: Kept) -> None:
    kept.provider.creations_left = 0
    waits = []
    for _ in range(3):
        await kept.autoscaler.run()
        found = await kept.store.find_single(Autoscaler)
        assert found is not None
        waits.append(found.next_attempt_at - kept.now)
        assert (await kept.autoscaler.run()).created == 0
        kept.clock.advance(waits[-1])
    assert waits == [60, 120, 240]


async def test_it_creates_ahead_of_a_reservation(kept: Kept) -> None:
    await kept.autoscaler.run()
    reservations = new_reservations(kept.store, clock=kept.clock, pool_max_total=10)
    start = kept.now + 3600
    await reservations.reserve(Booking(4, start, start + 3600, "course-"))
    assert (await kept.autoscaler.run()).created == 0, "it is too early"
    kept.clock.advance(1800)
    assert (await kept.autoscaler.run()).created == 4
    kept.clock.advance(1800)
    assert (await reservations.maintain()).filled == 1
    assert await kept.available() == 3
    assert (await kept.autoscaler.run()).created == 0


@pytest.mark.parametrize(("can_create", "per_hour"), [(False, 100), (False, 0), (True, 0)])
async def test_where_nothing_creates_them_what_is_missing_is_told_once(
    kept: Kept, can_create: bool, per_hour: int
) -> None:
    kept.provider.can_create = can_create
    kept.policy = replace(kept.policy, per_hour=per_hour)
    for _ in range(2):
        assert (await kept.autoscaler.run()).missing == 3
    assert await kept.kinds() == ["pool.empty", "pool.cannot_grow"]
    await fill(kept.store, 3)
    await kept.autoscaler.run()
    assert (await kept.kinds())[2:] == ["pool.recovered"], "it tells that none is missing too"
    await kept.lease(1)
    await kept.autoscaler.run()
    assert (await kept.kinds())[3:] == ["pool.cannot_grow"]
    await kept.check()


async def test_a_pool_that_was_never_low_also_reports_when_nothing_is_missing_any_more(
    kept: Kept,
) -> None:
    kept.provider.can_create = False
    await fill(kept.store, 2)
    await kept.autoscaler.run()
    await fill(kept.store, 1, prefix="more")
    await kept.autoscaler.run()
    assert await kept.kinds() == ["pool.cannot_grow", "pool.sufficient"]


async def test_it_tells_when_the_pool_is_low_empty_and_well_again(kept: Kept) -> None:
    await kept.autoscaler.run()
    kept.policy = AutoscalingPolicy(low_available=1, per_hour=0)
    await kept.autoscaler.run()
    await kept.lease(2)
    await kept.autoscaler.run()
    await kept.lease(1)
    await kept.autoscaler.run()
    await kept.autoscaler.run()
    told = [each for each in await kept.kinds() if not each.startswith("pool.creat")]
    assert told == ["pool.empty", "pool.recovered", "pool.low", "pool.empty"]
    await kept.check()


async def test_repeated_failures_of_sync_are_reported(kept: Kept) -> None:
    sync = new_sync(
        kept.store,
        kept.provider,
        clock=kept.clock,
        metrics=BrokerMetrics(CollectorRegistry()),
        lab_duration_hours=4,
    )

    async def away() -> None:
        raise ProviderUnavailableError

    for _ in range(5):
        with pytest.raises(ProviderUnavailableError):
            await kept.autoscaler.around_sync(away)()
    for _ in range(2):
        await kept.autoscaler.around_sync(sync.run)()
    assert await kept.kinds() == ["sync.failed", "sync.failed", "sync.failing", "sync.recovered"]
    assert await everything(kept.store) == []
    await kept.check()
