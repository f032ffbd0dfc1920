"""Replicas that share the index out among themselves: how often they reach for the same row."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import pytest

from sandyard.broker.pool.stores.dynamo_claims import REPLICAS_KEY
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.dynamo.replicas import DynamoReplicas
from tests.faults.concurrent_claims import AT_ONCE, claim_all, sandboxes
from tests.faults.proxy import FaultProxy
from tests.faults.stores import store_at
from tests.support.broker.pools import NOW, check_invariants, fill
from tests.support.clocks import ManualClock
from tests.support.storage.engines import PATIENT

FREE, CALLERS = 1125, 900
SELDOM = CALLERS * 2 // 100
HOUR = 3600


class Yard:
    """Replicas on one table, and how often their claims met."""

    def __init__(self, proxy: FaultProxy, pool: PoolTable, stack: AsyncExitStack) -> None:
        self._proxy = proxy
        self._pool = pool
        self._stack = stack
        self.clock = ManualClock(NOW)
        self.counted: Counter[str] = Counter()

    async def replica(self) -> DynamoPoolStore:
        def on_conflict() -> None:
            self.counted["conflicts"] += 1

        replica = await self._stack.enter_async_context(
            store_at(
                self._proxy.url,
                self._pool,
                policy=PATIENT,
                on_conflict=on_conflict,
                clock=self.clock,
            )
        )
        self._stack.push_async_callback(replica.close)
        return replica

    async def replicas(self, count: int) -> list[DynamoPoolStore]:
        replicas = [await self.replica() for _ in range(count)]
        await know_each_other(replicas)
        return replicas

    async def claim(
        self,
        replicas: Sequence[DynamoPoolStore],
        callers: int = CALLERS,
        *,
        at_once: int = AT_ONCE,
    ) -> None:
        claims = await claim_all(replicas, callers, at_once=at_once)
        self.counted["sandboxes"] = len(sandboxes(claims))


async def know_each_other(replicas: Sequence[DynamoPoolStore]) -> None:
    """As they do by themselves within seconds."""
    for _ in range(2):
        for replica in replicas:
            await replica.start()


@pytest.fixture
async def yard(proxy: FaultProxy, pool: PoolTable) -> AsyncIterator[Yard]:
    async with AsyncExitStack() as stack:
        yield Yard(proxy, pool, stack)


@pytest.mark.parametrize(
    "count", [3, *(pytest.param(n, marks=pytest.mark.torture) for n in (1, 2, 4, 5, 6, 7, 8))]
)
async def test_replicas_seldom_reach_for_the_same_row(
    yard: Yard, direct: DynamoPoolStore, count: int
) -> None:
    await fill(direct, FREE)
    await yard.claim(await yard.replicas(count))
    assert yard.counted["sandboxes"] == CALLERS
    assert yard.counted["conflicts"] < SELDOM


@pytest.mark.torture
async def test_nor_if_all_callers_come_at_once(yard: Yard, direct: DynamoPoolStore) -> None:
    await fill(direct, FREE)
    await yard.claim(await yard.replicas(3), at_once=CALLERS)
    assert yard.counted["sandboxes"] == CALLERS
    assert yard.counted["conflicts"] < SELDOM


@pytest.mark.torture
async def test_nor_after_one_of_them_was_replaced(yard: Yard, direct: DynamoPoolStore) -> None:
    await fill(direct, FREE)
    [leaving, *staying] = await yard.replicas(4)
    await leaving.close()
    replicas = [*staying, await yard.replica()]
    await know_each_other(replicas)
    await yard.claim(replicas)
    assert yard.counted["sandboxes"] == CALLERS
    assert yard.counted["conflicts"] < SELDOM


@pytest.mark.torture
async def test_nor_after_one_was_killed_and_an_hour_has_passed(
    yard: Yard, pool: PoolTable, direct: DynamoPoolStore
) -> None:
    await fill(direct, FREE)
    killed = DynamoReplicas(pool.table, key=REPLICAS_KEY, clock=yard.clock)
    await killed.renew()  # and is never heard of again
    replicas = await yard.replicas(3)
    yard.clock.advance(HOUR)
    await know_each_other(replicas)
    await yard.claim(replicas)
    assert yard.counted["sandboxes"] == CALLERS
    assert yard.counted["conflicts"] < SELDOM


async def test_one_whose_share_is_used_up_takes_from_the_others(
    yard: Yard, direct: DynamoPoolStore
) -> None:
    await fill(direct, 200)
    [busy, *_] = await yard.replicas(4)
    await yard.claim([busy], 200)
    assert yard.counted == {"sandboxes": 200}


async def test_the_last_free_sandbox_finds_its_caller(yard: Yard, direct: DynamoPoolStore) -> None:
    await fill(direct, 400)
    await yard.claim(await yard.replicas(4), 400)
    assert yard.counted["sandboxes"] == 400
    await check_invariants(direct)


async def test_rows_that_come_after_all_were_taken_are_found(
    yard: Yard, direct: DynamoPoolStore
) -> None:
    await fill(direct, 20)
    replicas = await yard.replicas(3)
    await yard.claim(replicas, 20)
    assert await claim_all(replicas, 3, prefix="early") == [None] * 3
    await fill(direct, 6, prefix="new")
    assert len(sandboxes(await claim_all(replicas, 6, prefix="late"))) == 6
