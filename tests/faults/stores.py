"""Stores as replicas have them, each with an engine object of its own."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiodynamo.credentials import Key, StaticCredentials

from sandyard.broker.pool.model import Sandbox, Status
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.dynamo.client import Dynamo, DynamoPolicy
from tests.support.broker.pools import everything

IMPATIENT = DynamoPolicy(  # but not too much so for a busy machine without faults
    deadline_sec=3.0,
    try_sec=1.0,
    backoff_base_sec=0.01,
    backoff_max_sec=0.1,
    circuit_threshold=1000,
)


@asynccontextmanager
async def table_at(
    url: str, pool: PoolTable, *, policy: DynamoPolicy = IMPATIENT
) -> AsyncIterator[PoolTable]:
    """The same table through another endpoint."""
    engine = Dynamo(
        region="us-east-1",
        endpoint_url=url,
        policy=policy,
        credentials=StaticCredentials(Key("local", "local")),
    )
    try:
        yield PoolTable(engine, pool.names)
    finally:
        await engine.close()


@asynccontextmanager
async def store_at(
    url: str,
    pool: PoolTable,
    *,
    policy: DynamoPolicy = IMPATIENT,
    on_conflict: Callable[[], None] = lambda: None,
    clock: Clock | None = None,
) -> AsyncIterator[DynamoPoolStore]:
    async with table_at(url, pool, policy=policy) as table:
        yield DynamoPoolStore(
            table,
            clock=clock or SystemClock(),
            prefetch_size=15,
            on_conflict=on_conflict,
            counts_age_sec=0,
        )


async def in_state(store: PoolStore, status: Status) -> list[Sandbox]:
    return [row for row in await everything(store) if row.status is status]
