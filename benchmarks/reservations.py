"""Claims beside an active reservation and a long queue, and the same without them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

from prometheus_client import CollectorRegistry

from benchmarks.loops import run
from benchmarks.report import Figure, Measured, Say
from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.model import Claim
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.service import Broker
from sandyard.broker.queue.model import URGENCY, decide_queued
from sandyard.broker.reservations.model import Booking
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.kit.clock import SystemClock
from sandyard.kit.ids import EventIds
from tests.support.broker.pools import fill
from tests.support.broker.services import new_broker, new_reservations
from tests.support.storage.engines import (
    broker_database,
    dynamo_server,
    pool_table,
    postgres_server,
)

_ROUNDS = 9
_CALLERS = 64
_TICKETS = 1000
_SLICE = {"SQLite": 1000, "PostgreSQL": 800, "DynamoDB": 100}
"""Claims of a round, by engine."""
_LEAST = 0.9
_COURSE = "course-"


@dataclass(frozen=True, slots=True)
class _Rates:
    without: list[float]
    strangers: list[float]
    members: list[float]


def measure(folder: Path, say: Say) -> Measured:
    figures: list[Figure] = []
    with postgres_server(folder / "postgres") as postgres_url, dynamo_server() as dynamo_url:
        for engine, claims in _SLICE.items():
            say(f"reservations: {engine}, {_ROUNDS} rounds of {claims} claims")
            rates = run(_measure(engine, claims, folder, postgres_url, dynamo_url))
            figures += _figures(engine, rates)
    return Measured(figures, f"{_TICKETS:,} tickets wait")


def _figures(engine: str, rates: _Rates) -> list[Figure]:
    def ratios(with_them: list[float]) -> list[float]:
        return [one / other for one, other in zip(with_them, rates.without, strict=True)]

    beside = f"with a reservation and {_TICKETS:,} tickets ÷ without, {engine}"
    return [
        Figure.at_least(f"claims of others {beside}", ratios(rates.strangers), _LEAST),
        Figure.at_least(f"claims of its tracks {beside}", ratios(rates.members), _LEAST),
        Figure("  claims per second without", f"{median(rates.without):,.0f}"),
    ]


async def _measure(
    engine: str, claims: int, folder: Path, postgres_url: str, dynamo_url: str
) -> _Rates:
    needed = (_ROUNDS + 1) * claims + _CALLERS
    async with AsyncExitStack() as stack:
        brokers = []
        for _ in range(2):
            store = await stack.enter_async_context(
                _store(engine, folder, postgres_url, dynamo_url)
            )
            await fill(store, 2 * needed)  # as many rows in both: an engine may mind their number
            metrics = BrokerMetrics(CollectorRegistry())
            brokers.append(new_broker(store, clock=SystemClock(), metrics=metrics))
        await _reserve(store, needed)
        return await _alternate(*brokers, claims=claims)


@asynccontextmanager
async def _store(
    engine: str, folder: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[PoolStore]:
    if engine == "DynamoDB":
        async with pool_table(dynamo_url) as pool:
            yield DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=100)
        return
    async with broker_database(engine.lower(), folder, postgres_url) as database:
        yield SqlPoolStore(database)


async def _reserve(store: PoolStore, sandboxes: int) -> None:
    """A reservation of so many, and tickets that wait for a name that no sandbox has."""
    now = int(time.time())
    reservations = new_reservations(store, clock=SystemClock())
    made, _ = await reservations.reserve(Booking(sandboxes, now, now + 3600, _COURSE))
    if made.missing:
        raise RuntimeError("the reservation was not filled")
    make_id = EventIds()
    for number in range(_TICKETS):
        claim = Claim(f"waits-{number}", "key", now, name_prefix="nowhere-")
        ticket_id = make_id(now * 1000 + number)
        await store.apply_together(decide_queued(claim, ticket_id=ticket_id, urgency=URGENCY))


async def _alternate(plain: Broker, reserved: Broker, *, claims: int) -> _Rates:
    names = count()
    rates = _Rates([], [], [])

    def track(prefix: str) -> Callable[[], str]:
        return lambda: f"{prefix}{next(names)}"

    for number in range(_ROUNDS + 1):
        measured = (
            (rates.without, await _rate(plain, track("track-"), claims)),
            (rates.strangers, await _rate(reserved, track("track-"), claims)),
            (rates.members, await _rate(reserved, track(_COURSE), claims)),
        )
        for kept, rate in measured:
            if number:  # the first round warms up
                kept.append(rate)
    return rates


async def _rate(broker: Broker, make_track: Callable[[], str], claims: int) -> float:
    left = claims

    async def call() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await broker.allocate(track_id=make_track())

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(_CALLERS):
            group.create_task(call())
    return claims / (time.perf_counter() - started)
