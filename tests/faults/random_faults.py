"""Engines that fail at random while replicas work on them, each in the ways that it can."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.kit.clock import SystemClock
from sandyard.kit.sql.database import PostgresDatabase, SqliteDatabase
from tests.faults.cluster import Proxy, Replica, proxy_process
from tests.faults.postgres_proxy import Cuts, PostgresProxy, postgres_proxy
from tests.support.storage.engines import AWS_ENVIRONMENT, create_database, pool_table

CALLS = {"reset": 0.02, "throttle": 0.04, "error": 0.02, "cancel": 0.04, "drop": 0.04}
STORM = {"reset": 0.3, "throttle": 0.3, "error": 0.2, "cancel": 0.5, "drop": 0.3}

Replicas = Sequence[Replica]


@dataclass(frozen=True, slots=True)
class FaultyEngine:
    replicas: int
    """How many servers may work on it at once."""
    environment: Mapping[str, str]
    change: Callable[[random.Random], Awaitable[None]]
    """Let other things go wrong, for about a second."""
    calm: Callable[[], Awaitable[None]]
    """Nothing goes wrong any more, and whatever was held up has arrived."""
    injected: Callable[[], Awaitable[Mapping[str, int]]]
    """How often what has gone wrong, of all that can."""
    opened: Callable[[Replicas], AbstractAsyncContextManager[PoolStore]]
    """The pool past all faults; for SQLite once its server has ended."""


@asynccontextmanager
async def faulty_engine(
    engine: str, *, postgres_url: str, dynamo_url: str, seed: int
) -> AsyncIterator[FaultyEngine]:
    match engine:
        case "sqlite":
            yield _sqlite()
        case "postgresql":
            async with _postgresql(postgres_url, seed) as faulty:
                yield faulty
        case _:
            async with _dynamodb(dynamo_url, seed) as faulty:
                yield faulty


def _sqlite() -> FaultyEngine:
    """In one process with its server, it fails with that alone."""

    async def change(_rng: random.Random) -> None:
        await asyncio.sleep(1)

    async def calm() -> None:
        return

    async def injected() -> Mapping[str, int]:
        return {}

    @asynccontextmanager
    async def opened(servers: Replicas) -> AsyncIterator[PoolStore]:
        database = SqliteDatabase(servers[0].data_dir / "broker.db", schema=MIGRATIONS.part)
        try:
            yield SqlPoolStore(database)
        finally:
            await database.close()

    return FaultyEngine(1, {}, change, calm, injected, opened)


@asynccontextmanager
async def _postgresql(server_url: str, seed: int) -> AsyncIterator[FaultyEngine]:
    url = sa.make_url(await create_database(server_url))
    database = PostgresDatabase(url, pool_size=4)
    await MIGRATIONS.upgrade(database)
    socket = Path(str(url.query["host"])) / ".s.PGSQL.5432"
    async with postgres_proxy(socket, seed=seed) as proxy:
        through = url.set(query={}, host="127.0.0.1", port=proxy.port)

        async def injected() -> Mapping[str, int]:
            return {kind: proxy.injected[kind] for kind in ("reset", "drop", "delay")}

        async def calm() -> None:
            proxy.cuts = Cuts()

        @asynccontextmanager
        async def opened(_servers: Replicas) -> AsyncIterator[PoolStore]:
            yield SqlPoolStore(database)

        environment = {"DATABASE_URL": through.render_as_string(hide_password=False)}
        try:
            yield FaultyEngine(3, environment, _changes_of(proxy), calm, injected, opened)
        finally:
            await database.close()


def _changes_of(proxy: PostgresProxy) -> Callable[[random.Random], Awaitable[None]]:
    async def change(rng: random.Random) -> None:
        cut = 0.05 if rng.random() < 0.15 else 0.004
        proxy.cuts = Cuts(cut, cut, delay=0.01, delay_sec=rng.choice([0.05, 0.2, 1]))
        await asyncio.sleep(1)

    return change


@asynccontextmanager
async def _dynamodb(engine_url: str, seed: int) -> AsyncIterator[FaultyEngine]:
    async with pool_table(engine_url) as pool, proxy_process(engine_url, seed=seed) as proxy:

        async def calm() -> None:
            await proxy.set(**dict.fromkeys(CALLS, 0), delay=0, index_lag_sec=0)
            await proxy.settle()

        async def injected() -> Mapping[str, int]:
            counted = Counter((await proxy.look())["total"]["injected"])
            return {kind: counted[kind] for kind in CALLS}

        @asynccontextmanager
        async def opened(_servers: Replicas) -> AsyncIterator[PoolStore]:
            yield DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=1)

        environment = AWS_ENVIRONMENT | {
            "POOL_STORE": "dynamodb",
            "DDB_ENDPOINT_URL": proxy.url,
            "DDB_TABLE_NAME": pool.names.table,
        }
        yield FaultyEngine(4, environment, _changing_faults(proxy), calm, injected, opened)


def _changing_faults(proxy: Proxy) -> Callable[[random.Random], Awaitable[None]]:
    """A storm now and then, short and long delays, an index more or less late."""

    async def change(rng: random.Random) -> None:
        delay_sec = rng.choice([0.1, 0.4, 3.5])
        await proxy.set(
            **(STORM if rng.random() < 0.15 else CALLS),
            delay=0.04 if delay_sec < 1 else 0.01,
            delay_sec=delay_sec,
            index_lag_sec=rng.uniform(1, 3),
        )
        await asyncio.sleep(1)

    return change
