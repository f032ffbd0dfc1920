"""A table, a proxy before its engine, and stores on either side of it."""

from collections.abc import AsyncIterator

import pytest

from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.clock import SystemClock
from tests.faults.proxy import FaultProxy, fault_proxy
from tests.faults.stores import store_at
from tests.support.storage.engines import pool_table


@pytest.fixture
async def pool(dynamo_url: str) -> AsyncIterator[PoolTable]:
    """A table, reached without the proxy."""
    async with pool_table(dynamo_url) as pool:
        yield pool


@pytest.fixture
async def proxy(dynamo_url: str) -> AsyncIterator[FaultProxy]:
    async with fault_proxy(dynamo_url, seed=7) as proxy:
        yield proxy


@pytest.fixture
def direct(pool: PoolTable) -> DynamoPoolStore:
    """The same pool, seen past all faults."""
    return DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=15, counts_age_sec=0)


@pytest.fixture
async def store(proxy: FaultProxy, pool: PoolTable) -> AsyncIterator[DynamoPoolStore]:
    """The pool as a replica sees it, through the proxy and with little patience."""
    async with store_at(proxy.url, pool) as store:
        yield store
