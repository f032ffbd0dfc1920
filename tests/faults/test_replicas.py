"""Processes that share a table, and how they learn of each other."""

import pytest

from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.kit.dynamo.replicas import DynamoReplicas
from tests.faults.proxy import FaultProxy
from tests.faults.stores import IMPATIENT, table_at
from tests.support.clocks import ManualClock

KEY = {"PK": "REPLICAS", "SK": "TEST"}
LONG_AFTER = 60


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000)


@pytest.fixture
def trio(pool: PoolTable, clock: ManualClock) -> list[DynamoReplicas]:
    return [DynamoReplicas(pool.table, key=KEY, clock=clock) for _ in range(3)]


def ranks(*replicas: DynamoReplicas) -> list[int]:
    return sorted(each.rank for each in replicas)


async def renew_all(*replicas: DynamoReplicas) -> None:
    for _ in range(2):
        for each in replicas:
            await each.renew()


async def test_one_alone_is_the_first_of_one(trio: list[DynamoReplicas]) -> None:
    await trio[0].renew()
    assert (trio[0].rank, trio[0].count) == (0, 1)


async def test_each_has_a_rank_of_its_own(trio: list[DynamoReplicas]) -> None:
    await renew_all(*trio)
    assert ranks(*trio) == [0, 1, 2]
    assert {each.count for each in trio} == {3}


async def test_one_that_stops_is_not_counted_any_more(trio: list[DynamoReplicas]) -> None:
    await trio[0].start()
    await renew_all(*trio)
    await trio[0].stop()
    await renew_all(*trio[1:])
    assert ranks(*trio[1:]) == [0, 1]


async def test_one_that_was_killed_is_forgotten_and_may_come_back(
    trio: list[DynamoReplicas], pool: PoolTable, clock: ManualClock
) -> None:
    await renew_all(*trio)
    clock.advance(LONG_AFTER)
    await renew_all(*trio[1:])
    assert ranks(*trio[1:]) == [0, 1]
    entries = [name for name in await pool.table.get(KEY) or {} if name.startswith("replica_")]
    assert len(entries) == 2
    await renew_all(*trio)
    assert ranks(*trio) == [0, 1, 2]


async def test_those_who_come_back_late_do_not_forget_each_other(
    trio: list[DynamoReplicas], clock: ManualClock
) -> None:
    await renew_all(*trio)
    clock.advance(LONG_AFTER)
    await renew_all(*trio)
    assert ranks(*trio) == [0, 1, 2]


async def test_with_the_engine_away_it_starts_with_what_it_knows(
    proxy: FaultProxy, pool: PoolTable, clock: ManualClock
) -> None:
    proxy.set(drop=1)
    async with table_at(proxy.url, pool, policy=IMPATIENT) as away:
        alone = DynamoReplicas(away.table, key=KEY, clock=clock)
        await alone.start()
        assert (alone.rank, alone.count) == (0, 1)
        await alone.stop()
