"""What claims cost on DynamoDB beside a reservation and a long queue: as much as without."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.lease_model import Extension, Replacement
from sandyard.broker.pool.model import Claim
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.service import Broker
from sandyard.broker.queue.model import URGENCY, decide_queued
from sandyard.broker.reservations.model import Booking
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.clock import SystemClock
from sandyard.kit.ids import EventIds
from tests.faults.proxy import FaultProxy
from tests.support.broker.pools import fill
from tests.support.broker.services import new_broker, new_leases, new_reservations
from tests.support.storage.engines import pool_table

CLAIMS, AT_ONCE, KEPT, WAITING = 60, 6, 80, 100


@pytest.fixture
async def store(proxy: FaultProxy) -> AsyncIterator[DynamoPoolStore]:
    """Through the proxy, which counts, and so patient that nothing is sent twice."""
    async with pool_table(proxy.url) as pool:
        yield DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=15, counts_age_sec=0)


def broker_of(store: PoolStore) -> Broker:
    return new_broker(store, clock=SystemClock(), metrics=BrokerMetrics(CollectorRegistry()))


async def reserve(store: PoolStore) -> None:
    """A course has a reservation, and many wait for a name that no sandbox has."""
    now = int(time.time())
    reservations = new_reservations(store, clock=SystemClock())
    made, _ = await reservations.reserve(Booking(KEPT, now, now + 3600, "course-"))
    assert not made.missing
    make_id = EventIds()
    for number in range(WAITING):
        claim = Claim(f"waits-{number}", "key", now, name_prefix="nowhere-")
        ticket_id = make_id(now * 1000 + number)
        await store.apply_together(decide_queued(claim, ticket_id=ticket_id, urgency=URGENCY))


async def claim_all(broker: Broker, prefix: str) -> None:
    async def claim_some(caller: int) -> None:
        for number in range(CLAIMS // AT_ONCE):
            await broker.allocate(track_id=f"{prefix}{caller}-{number}")

    async with asyncio.TaskGroup() as group:
        for caller in range(AT_ONCE):
            group.create_task(claim_some(caller))


async def calls_of(proxy: FaultProxy, broker: Broker, prefix: str) -> Counter[str]:
    """Past the first claim, which learns what there is."""
    await broker.allocate(track_id=f"{prefix}first")
    proxy.reset_counts()
    await claim_all(broker, prefix)
    return Counter(proxy.calls)


async def test_a_claim_costs_the_same_beside_a_reservation_and_a_queue(
    proxy: FaultProxy, store: DynamoPoolStore
) -> None:
    await fill(store, 2 * CLAIMS + KEPT + 10)
    broker = broker_of(store)
    without = await calls_of(proxy, broker, "before-")
    await reserve(store)
    broker = broker_of(store)
    strangers = await calls_of(proxy, broker, "stranger-")
    members = await calls_of(proxy, broker, "course-")
    for calls in (without, strangers, members):
        assert calls.keys() <= {"TransactWriteItems", "Query", "BatchGetItem"}
        assert calls["TransactWriteItems"] == CLAIMS, "a claim is one transaction"


async def test_no_call_of_a_track_scans(proxy: FaultProxy, store: DynamoPoolStore) -> None:
    await fill(store, KEPT + 10)
    await reserve(store)
    broker = broker_of(store)
    metrics = BrokerMetrics(CollectorRegistry())
    leases = new_leases(store, clock=SystemClock(), metrics=metrics, lease_max_sec=10**6)
    proxy.reset_counts()
    for track in ("stranger", "course-1"):
        lease = (await broker.allocate(track_id=track)).lease
        await broker.allocate(track_id=track)
        await leases.extend(lease.sandbox_id, Extension(track, 10, "k"))
        other = await leases.replace(lease.sandbox_id, Replacement(track, "broken"))
        await broker.mark_for_deletion(track_id=track, sandbox_id=other.sandbox_id)
    await broker.queue(track_id="last", name_prefix="nowhere-")
    assert proxy.calls["TransactWriteItems"] >= 10
    assert not proxy.calls["Scan"], proxy.calls
