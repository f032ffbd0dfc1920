"""How often replicas on DynamoDB reach for the same sandbox: 900 callers on 1,125 free ones."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from aiodynamo.credentials import Key, StaticCredentials

from benchmarks.dynamo_engine import find_program
from benchmarks.loops import run
from benchmarks.report import Figure, Measured, Say
from sandyard.broker.pool.model import Claim
from sandyard.broker.pool.stores.dynamo_claims import REPLICAS_KEY
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.dynamo.client import Dynamo
from sandyard.kit.dynamo.replicas import DynamoReplicas
from tests.support.broker.pools import NOW, fill
from tests.support.clocks import ManualClock
from tests.support.storage.engines import PATIENT, dynamo_server, pool_table

_FREE, _CALLERS = 1_125, 900
_COUNTS = range(1, 9)
_MOST_PERCENT = 2.0
_HOUR_SEC = 3600
_WHAT = f"conflicts per claim, {_CALLERS} callers on {_FREE:,} free, DynamoDB"


class _Table:
    """One pool, the replicas on it, and how often their claims met."""

    def __init__(self, url: str, pool: PoolTable, stack: AsyncExitStack) -> None:
        self._url = url
        self._stack = stack
        self.pool = pool
        self.clock = ManualClock(NOW)
        self.conflicts = 0

    def replica(self) -> DynamoPoolStore:
        engine = Dynamo(
            region="us-east-1",
            endpoint_url=self._url,
            policy=PATIENT,
            credentials=StaticCredentials(Key("local", "local")),
        )
        store = DynamoPoolStore(
            PoolTable(engine, self.pool.names),
            clock=self.clock,
            prefetch_size=15,
            on_conflict=self._count,
        )
        self._stack.push_async_callback(store.close)
        return store

    def _count(self) -> None:
        self.conflicts += 1


Prepare = Callable[[_Table], Awaitable[Sequence[DynamoPoolStore]]]


def measure(_folder: Path, say: Say) -> Measured:
    if find_program() is None:
        why = "no engine; `make test` installs it"
        return Measured([Figure.not_measured(_WHAT, why)])
    with dynamo_server() as url:
        return Measured(run(_measure(url, say)), f"replicas {_FREE:,}")


async def _measure(url: str, say: Say) -> list[Figure]:
    cases: dict[str, Prepare] = {
        **{f"{count} replicas": partial(_started, count=count) for count in _COUNTS},
        "one of 4 replaced": _one_replaced,
        "one of 4 killed an hour ago": _one_killed,
    }
    figures = []
    for name, prepare in cases.items():
        say(f"replicas: {name}")
        percent = await _conflict_percent(url, prepare)
        figures.append(Figure.below(f"{_WHAT}, {name}", percent, _MOST_PERCENT, "%"))
    return figures


async def _conflict_percent(url: str, prepare: Prepare) -> float:
    """Raises RuntimeError unless each caller was given a sandbox of its own."""
    async with pool_table(url) as pool, AsyncExitStack() as stack:
        table = _Table(url, pool, stack)
        await fill(table.replica(), _FREE)
        replicas = await prepare(table)
        claims = await asyncio.gather(
            *(
                replicas[number % len(replicas)].claim(Claim(f"t{number}", f"t{number}", NOW))
                for number in range(_CALLERS)
            )
        )
        if len({claim.lease.sandbox_id for claim in claims if claim}) != _CALLERS:
            raise RuntimeError("a caller was not given a sandbox of its own")
        return table.conflicts / _CALLERS * 100


async def _started(table: _Table, *, count: int) -> Sequence[DynamoPoolStore]:
    return await _acquainted([table.replica() for _ in range(count)])


async def _one_replaced(table: _Table) -> Sequence[DynamoPoolStore]:
    [leaving, *staying] = await _started(table, count=4)
    await leaving.close()
    return await _acquainted([*staying, table.replica()])


async def _one_killed(table: _Table) -> Sequence[DynamoPoolStore]:
    killed = DynamoReplicas(table.pool.table, key=REPLICAS_KEY, clock=table.clock)
    await killed.renew()  # and is never heard of again
    replicas = await _started(table, count=3)
    table.clock.advance(_HOUR_SEC)
    return await _acquainted(replicas)


async def _acquainted(replicas: Sequence[DynamoPoolStore]) -> Sequence[DynamoPoolStore]:
    """As they are by themselves within seconds."""
    for _ in range(2):
        for replica in replicas:
            await replica.start()
    return replicas
