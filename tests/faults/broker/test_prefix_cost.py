"""What a claim by a prefix reads of the index on DynamoDB."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sandyard.broker.pool.model import Claim
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.clock import SystemClock
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item
from tests.support.broker.pools import NOW, fill
from tests.support.storage.engines import pool_table

FREE = 600


class CountedTable(Table):
    """A table that keeps the limits of its queries, the largest number of rows that each reads."""

    limits: list[int | None]

    async def query(self, **query: Any) -> tuple[list[Item], Item | None, int]:
        self.limits.append(query.get("limit"))
        return await super().query(**query)


@pytest.fixture
async def pool(dynamo_url: str) -> AsyncIterator[PoolTable]:
    async with pool_table(dynamo_url) as pool:
        table = CountedTable(pool.table.engine, pool.names.table)
        table.limits = []
        pool.table = table
        yield pool


async def claim(pool: PoolTable, prefix: str) -> list[int]:
    """Claim by the prefix; the limits of the queries, all of which have one."""
    assert isinstance(pool.table, CountedTable)
    store = DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=15)
    await fill(store, FREE)
    await fill(store, 1, prefix="rare")
    pool.table.limits.clear()
    assert await store.claim(Claim("t", "t", NOW, name_prefix=prefix)) is not None
    limits = [limit for limit in pool.table.limits if limit is not None]
    assert limits == pool.table.limits
    return limits


async def test_where_many_names_match_a_claim_reads_a_few(pool: PoolTable) -> None:
    assert sum(await claim(pool, "lab-")) <= 45


async def test_where_few_names_match_it_reads_ever_more_at_once(pool: PoolTable) -> None:
    limits = await claim(pool, "rare")
    assert len(limits) <= 8
    assert limits[:3] == [15, 30, 60][: len(limits)]
    assert max(limits) <= 500
