"""How old the pool's counts are, on every engine."""

from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.model import Status
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.kit.sql.database import Database
from tests.support.broker.pools import NOW, fill
from tests.support.broker.services import new_broker
from tests.support.clocks import ManualClock
from tests.support.storage.engines import pool_table


async def test_in_sql_they_are_of_the_moment(database: Database, clock: ManualClock) -> None:
    store = SqlPoolStore(database)
    broker = new_broker(store, clock=clock, metrics=BrokerMetrics(CollectorRegistry()))
    for count in (1, 2):
        await fill(store, 1, prefix=f"lab{count}")
        clock.advance(7)
        stats = await broker.stats()
        assert (stats.by_status[Status.AVAILABLE], stats.counted_at) == (count, NOW + 7 * count)


@pytest.fixture
async def dynamo_store(dynamo_url: str, clock: ManualClock) -> AsyncIterator[DynamoPoolStore]:
    async with pool_table(dynamo_url) as pool:
        yield DynamoPoolStore(pool, clock=clock, prefetch_size=15)


async def test_on_dynamodb_they_say_when_they_were_taken(
    dynamo_store: DynamoPoolStore, clock: ManualClock
) -> None:
    broker = new_broker(dynamo_store, clock=clock, metrics=BrokerMetrics(CollectorRegistry()))
    for seconds, available, counted_at in ((0, 1, NOW), (14, 1, NOW), (1, 3, NOW + 15)):
        clock.advance(seconds)
        await fill(dynamo_store, 1, prefix=f"lab{seconds}")
        stats = await broker.stats()
        assert (stats.by_status[Status.AVAILABLE], stats.counted_at) == (available, counted_at)
