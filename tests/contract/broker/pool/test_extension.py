"""Longer leases, on every engine."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.errors import AllocationExpiredError, LeaseTooLongError
from sandyard.broker.pool.jobs import Expiry
from sandyard.broker.pool.lease_model import Extension
from sandyard.broker.pool.leases import Leases
from sandyard.broker.pool.model import Status
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.service import Broker
from sandyard.broker.verification import verify
from tests.fakes.pool.state import PoolState
from tests.fakes.pool.store import MemoryPoolStore
from tests.support.broker.pools import LAB_SEC, NOW, check_invariants, fill, row
from tests.support.broker.services import new_broker, new_leases
from tests.support.clocks import ManualClock

T = TypeVar("T")

HALF_AN_HOUR = 30 * 60


@pytest.fixture
def leases(store: PoolStore, clock: ManualClock, metrics: BrokerMetrics) -> Leases:
    return new_leases(store, clock=clock, metrics=metrics, lease_max_sec=24 * 3600)


@pytest.fixture
async def sandbox_id(store: PoolStore, broker: Broker) -> str:
    await fill(store, 3)
    return (await broker.allocate(track_id="t")).lease.sandbox_id


async def test_a_repeated_allocate_answers_the_current_end(
    store: PoolStore, broker: Broker, leases: Leases, clock: ManualClock, sandbox_id: str
) -> None:
    extended = await leases.extend(sandbox_id, Extension("t", 30, "k"))
    assert extended.expires_at == NOW + LAB_SEC + HALF_AN_HOUR
    assert (await broker.allocate(track_id="t")).lease == extended
    assert await store.find_lease("t", "t") == extended
    clock.advance(LAB_SEC + HALF_AN_HOUR - 1)
    assert (await broker.allocate(track_id="t")).lease == extended
    clock.advance(1)
    assert (await broker.allocate(track_id="t")).lease.sandbox_id != sandbox_id
    await check_invariants(store)
    assert (await verify(store)).problems == []


async def test_expiry_and_marks_go_by_the_new_end(
    store: PoolStore,
    broker: Broker,
    leases: Leases,
    clock: ManualClock,
    metrics: BrokerMetrics,
    sandbox_id: str,
) -> None:
    other = (await broker.allocate(track_id="other")).lease.sandbox_id
    for each, track in ((sandbox_id, "t"), (other, "other")):
        await leases.extend(each, Extension(track, 30))
    expiry = Expiry(store, clock=clock, metrics=metrics, grace_sec=0)
    clock.advance(LAB_SEC + HALF_AN_HOUR - 1)
    assert (await expiry.run()).expired == 0
    await broker.mark_for_deletion(track_id="other", sandbox_id=other)
    clock.advance(1)
    with pytest.raises(AllocationExpiredError):
        await broker.mark_for_deletion(track_id="t", sandbox_id=sandbox_id)
    assert (await expiry.run()).expired == 1
    assert (await row(store, sandbox_id)).status is Status.PENDING_DELETION


async def test_a_row_that_comes_late_is_not_taken_for_that_of_now(
    clock: ManualClock, metrics: BrokerMetrics
) -> None:
    """While it is on its way another call extends the lease, which passes its first end."""
    state, is_late = PoolState(), True
    direct = MemoryPoolStore(state)

    async def call(work: Callable[[], T], /) -> T:
        nonlocal is_late
        found = work()
        if is_late:
            is_late = False
            await others.extend(sandbox_id, Extension("t", 30, "first"))
            clock.advance(LAB_SEC + 1)
        return found

    others, late = (
        new_leases(each, clock=clock, metrics=metrics, lease_max_sec=24 * 3600)
        for each in (direct, MemoryPoolStore(state, call))
    )
    await fill(direct, 1)
    broker = new_broker(direct, clock=clock, metrics=metrics)
    sandbox_id = (await broker.allocate(track_id="t")).lease.sandbox_id
    lease = await late.extend(sandbox_id, Extension("t", 30, "second"))
    assert lease.expires_at == NOW + LAB_SEC + 2 * HALF_AN_HOUR


async def test_of_many_calls_at_once_each_key_counts_once(
    store: PoolStore, leases: Leases, sandbox_id: str
) -> None:
    calls = [leases.extend(sandbox_id, Extension("t", 10, f"k{n % 3}")) for n in range(9)]
    await asyncio.gather(*calls)
    assert (await row(store, sandbox_id)).expires_at == NOW + LAB_SEC + 3 * 600
    await check_invariants(store)


async def test_none_passes_the_bound_however_many_ask_at_once(
    store: PoolStore, leases: Leases, sandbox_id: str
) -> None:
    calls = (leases.extend(sandbox_id, Extension("t", 4 * 60, f"k{n}")) for n in range(8))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(each, LeaseTooLongError) for each in outcomes) == 3
    assert (await row(store, sandbox_id)).expires_at == NOW + 24 * 3600


async def test_a_lease_lasts_as_long_as_its_track_asks(store: PoolStore, broker: Broker) -> None:
    await fill(store, 1)
    lease = (await broker.allocate(track_id="t", lab_minutes=20)).lease
    assert lease.expires_at == NOW + 20 * 60
    assert await store.find_lease("t", "t") == lease
    assert (await broker.allocate(track_id="t", lab_minutes=99)).lease == lease
