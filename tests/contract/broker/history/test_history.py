"""The pool's last day, on every engine."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandyard.broker.history.model import KEPT_SEC, MINUTE_SEC, PoolSample, minute_of
from sandyard.broker.history.ports import HistoryStore
from sandyard.broker.history.service import History
from sandyard.broker.history.stores.dynamo import DynamoHistoryStore
from sandyard.broker.history.stores.sql import SqlHistoryStore
from sandyard.broker.pool.model import Claim, Status
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.kit.clock import SystemClock
from tests.support.broker.pools import fill
from tests.support.clocks import ManualClock
from tests.support.storage.engines import STORE_ENGINES, broker_database, pool_table


@dataclass
class Bench:
    pool: PoolStore
    store: HistoryStore
    clock: ManualClock
    here: int
    """This minute: events have the time of writing, so the samples must be of it."""

    @property
    def history(self) -> History:
        return History(self.pool, self.store, clock=self.clock)


@pytest.fixture(params=STORE_ENGINES)
async def bench(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[Bench]:
    here = minute_of(SystemClock().now())
    clock = ManualClock(here + 7)
    if request.param == "dynamodb":
        async with pool_table(dynamo_url) as pool:
            store = DynamoPoolStore(pool, clock=clock, prefetch_size=15, counts_age_sec=0)
            yield Bench(store, DynamoHistoryStore(pool.table), clock, here)
        return
    async with broker_database(request.param, tmp_path, postgres_url) as database:
        yield Bench(SqlPoolStore(database), SqlHistoryStore(database), clock, here)


def sample(at: int, *, leases: int = 0) -> PoolSample:
    return PoolSample(at, dict.fromkeys(Status, 0) | {Status.STALE: 3}, 2, leases)


async def test_samples_come_back_in_order_and_from_a_minute_on(bench: Bench) -> None:
    taken = [sample(bench.here + n * MINUTE_SEC, leases=n) for n in (2, 0, 1)]
    for each in taken:
        await bench.store.record(each, kept_from=0)
    in_order = sorted(taken, key=lambda each: each.at)
    assert list(await bench.store.samples(since=0)) == in_order
    assert list(await bench.store.samples(since=bench.here + MINUTE_SEC)) == in_order[1:]


async def test_a_minute_has_one_sample_the_last(bench: Bench) -> None:
    for leases in (1, 5):
        await bench.store.record(sample(bench.here, leases=leases), kept_from=0)
    assert list(await bench.store.samples(since=0)) == [sample(bench.here, leases=5)]


async def test_a_day_is_read_whatever_is_still_kept(bench: Bench) -> None:
    for at in (bench.here - KEPT_SEC - MINUTE_SEC, bench.here - KEPT_SEC + MINUTE_SEC, bench.here):
        await bench.store.record(sample(at), kept_from=bench.here - KEPT_SEC)
    read = await bench.history.read(hours=24, step_sec=MINUTE_SEC)
    assert [each.at for each in read.samples] == [bench.here - KEPT_SEC + MINUTE_SEC, bench.here]


async def test_the_pool_is_sampled_once_a_minute_with_its_leases(bench: Bench) -> None:
    await fill(bench.pool, 3)
    assert [(await bench.history.sample()).sampled for _ in range(2)] == [1, 0]
    for track in ("a", "b"):
        assert await bench.pool.claim(Claim(track, track, bench.here))
    for _ in range(2):  # they may be of this minute or, by now, of the next
        bench.clock.advance(MINUTE_SEC)
        assert (await bench.history.sample()).sampled == 1
    found = await bench.store.samples(since=0)
    counts = [(each.at - bench.here, each.available, each.waiting) for each in found]
    assert counts == [(0, 3, 0), (60, 1, 0), (120, 1, 0)]
    assert sum(each.leases for each in found) == 2


async def test_leases_that_were_not_yet_to_be_seen_are_counted_with_the_next(
    bench: Bench,
) -> None:
    await fill(bench.pool, 1)
    bench.clock.advance(MINUTE_SEC)
    await bench.store.record(sample(bench.here + MINUTE_SEC), kept_from=0)
    assert await bench.pool.claim(Claim("a", "a", bench.here))
    bench.clock.advance(MINUTE_SEC)
    assert (await bench.history.sample()).sampled == 1
    assert sum(each.leases for each in await bench.store.samples(since=0)) == 1
