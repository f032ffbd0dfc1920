"""Nothing that tracks do reads a whole table, with reservations and a queue beside it."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry
from sqlalchemy.pool.base import _ConnectionFairy as PoolProxiedConnection

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.lease_model import Extension, Replacement
from sandyard.broker.pool.model import Claim, Status
from sandyard.broker.pool.ports import SandboxFilter, Sort
from sandyard.broker.pool.service import Broker
from sandyard.broker.queue.model import URGENCY, decide_queued
from sandyard.broker.reservations.model import Booking
from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.kit.clock import SystemClock
from sandyard.kit.ids import EventIds
from sandyard.kit.sql.database import Database
from tests.support.broker.pools import fill
from tests.support.broker.services import new_broker, new_leases, new_queue, new_reservations
from tests.support.storage.query_plans import scanned

MANY, WAITING = 1000, 150
LARGE = {"sandboxes", "tickets", "events"}


class RecordedCursor:
    """A driver's cursor that notes what it runs, whether by SQLAlchemy or past it."""

    def __init__(self, cursor: Any, statements: list[tuple[str, Any]]) -> None:
        self._cursor = cursor
        self._statements = statements

    def execute(self, statement: str, *values: Any) -> Any:
        if re.match(r"\s*(SELECT|UPDATE|DELETE|WITH)", statement):
            self._statements.append((statement, *values))
        return self._cursor.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)


@contextmanager
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any]]]:
    """Every statement that reads or changes rows inside, with its parameters."""
    statements: list[tuple[str, Any]] = []
    make = PoolProxiedConnection.cursor

    def cursor(connection: Any, *options: Any, **named: Any) -> Any:
        return RecordedCursor(make(connection, *options, **named), statements)

    with monkeypatch.context() as patched:
        patched.setattr(PoolProxiedConnection, "cursor", cursor)
        yield statements


async def plan_of(database: Database, statement: str, parameters: Any) -> str:
    explain = "EXPLAIN QUERY PLAN " if database.name == "sqlite" else "EXPLAIN "

    def work(connection: sa.Connection) -> str:
        if database.name != "sqlite":  # in a pool this small PostgreSQL scans though it need not
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        return str(connection.exec_driver_sql(explain + statement, parameters).all())

    return await database.write(work)


async def analyze(database: Database) -> None:
    await database.write(lambda connection: connection.exec_driver_sql("ANALYZE"))


@pytest.fixture
async def broker(database: Database) -> Broker:
    """A large pool with a reservation, and many who wait for what is not there."""
    store = SqlPoolStore(database)
    await fill(store, MANY)
    now = int(time.time())
    reservations = new_reservations(store, clock=SystemClock())
    await reservations.reserve(Booking(100, now, now + 3600, "course-"))
    make_id = EventIds()
    for number in range(WAITING):
        claim = Claim(f"waits-{number}", "key", now, name_prefix="nowhere-")
        ticket_id = make_id(now * 1000 + number)
        await store.apply_together(decide_queued(claim, ticket_id=ticket_id, urgency=URGENCY))
    await analyze(database)
    metrics = BrokerMetrics(CollectorRegistry())
    return new_broker(store, clock=SystemClock(), metrics=metrics)


async def test_no_call_of_a_track_scans(
    database: Database, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqlPoolStore(database)
    metrics = BrokerMetrics(CollectorRegistry())
    leases = new_leases(store, clock=SystemClock(), metrics=metrics, lease_max_sec=10**6)
    with sent(monkeypatch) as statements:
        for track in ("stranger", "course-1"):
            lease = (await broker.allocate(track_id=track)).lease
            assert any("sandboxes" in each for each, _ in statements), "claims are noted too"
            await broker.allocate(track_id=track)
            await leases.extend(lease.sandbox_id, Extension(track, 10, "k"))
            other = await leases.replace(lease.sandbox_id, Replacement(track, "broken"))
            await broker.mark_for_deletion(track_id=track, sandbox_id=other.sandbox_id)
        await new_queue(store, clock=SystemClock(), ticket_ttl_sec=60).ask(
            lambda: Claim("last", "key", int(time.time()), name_prefix="nowhere-")
        )
    assert len(statements) > 10
    for statement, parameters in statements:
        plan = await plan_of(database, statement, parameters)
        assert not LARGE.intersection(scanned(plan)), f"{statement}\n{plan}"


async def test_a_scan_is_seen(database: Database) -> None:
    unindexed = "SELECT * FROM broker.sandboxes WHERE track_name IS NOT NULL"
    assert scanned(await plan_of(database, unindexed, ())) == ["sandboxes"]


async def test_a_search_goes_along_the_indexes_of_ids_tracks_and_names(
    database: Database, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        await broker.allocate(track_id=f"dns-{number}")
    await analyze(database)
    with sent(monkeypatch) as statements:
        await SqlPoolStore(database).page(SandboxFilter(search="dns-"), limit=100, cursor=None)
    plans = [await plan_of(database, *each) for each in statements]
    assert len(plans) == 3
    assert not LARGE.intersection(each for plan in plans for each in scanned(plan))
    assert "sandboxes_by_track" in plans[1]
    assert plans[2].count("sandboxes_by_status") == len(Status)


@pytest.mark.parametrize("sort", Sort)
async def test_a_sorted_listing_goes_along_indexes(
    database: Database, broker: Broker, monkeypatch: pytest.MonkeyPatch, sort: Sort
) -> None:
    for number in range(50):
        await broker.allocate(track_id=f"dns-{number}")
    await analyze(database)
    store, where = SqlPoolStore(database), SandboxFilter(sort=sort)
    first = await store.page(where, limit=40, cursor=None)
    with sent(monkeypatch) as statements:
        await store.page(where, limit=40, cursor=first.next_cursor)
    plans = [await plan_of(database, *each) for each in statements]
    assert plans
    assert not LARGE.intersection(each for plan in plans for each in scanned(plan))
