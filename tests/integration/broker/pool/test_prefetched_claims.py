"""Claims on PostgreSQL of what was read ahead: one statement for many, and nothing that another
has touched meanwhile."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from sandyard.broker.pool.model import Claim, decide_reserved
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.broker.stores.tables import sandboxes
from sandyard.kit.sql.database import PostgresDatabase, T, Work
from tests.support.broker.pools import (
    NOW,
    check_invariants,
    claims,
    everything,
    fill,
    ids_of,
    operator,
    quarantined,
    restored,
)
from tests.support.storage.engines import create_migrated


class CountingDatabase(PostgresDatabase):
    """Counts what is asked of it."""

    def __init__(self, url: sa.URL) -> None:
        super().__init__(url, pool_size=4)
        self.calls: Counter[str] = Counter()

    async def write(self, work: Work[T]) -> T:
        self.calls["transactions"] += 1
        return await super().write(work)

    async def run_statement(self, work: Work[T]) -> T:
        self.calls["statements"] += 1
        return await super().run_statement(work)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[CountingDatabase]:
    database = CountingDatabase(sa.make_url(await create_migrated(postgres_url, MIGRATIONS)))
    yield database
    await database.close()


@pytest.fixture
def store(database: CountingDatabase) -> SqlPoolStore:
    return SqlPoolStore(database)


async def test_a_batch_is_one_statement_and_few_read_ahead(
    store: SqlPoolStore, database: CountingDatabase
) -> None:
    await fill(store, 100)
    database.calls.clear()
    given = [
        each
        for batch in range(8)
        for each in ids_of(await claims(store, *(f"{batch}-{n}" for n in range(8))))
    ]
    assert len(set(given)) == 64
    assert database.calls == {"statements": 8 + 1}
    await check_invariants(store)


async def test_a_repeat_returns_its_lease_and_the_other_claims_need_no_locks(
    store: SqlPoolStore, database: CountingDatabase
) -> None:
    await fill(store, 100)
    first = await claims(store, "a", "b")
    again = await claims(store, "a", "c", "b", "c")
    assert [each and each.is_new for each in again] == [False, True, False, False]
    assert (ids_of(again)[0], ids_of(again)[2]) == tuple(ids_of(first))
    database.calls.clear()
    assert all(each and each.is_new for each in await claims(store, "d", "e"))
    assert database.calls["transactions"] == 0
    await check_invariants(store)


async def test_what_another_has_changed_meanwhile_is_not_leased(store: SqlPoolStore) -> None:
    await fill(store, 8)
    [first] = ids_of(await claims(store, "a"))  # reads the others ahead
    taken, *free = [row for row in await everything(store) if row.sandbox_id != first]
    out = quarantined(taken)
    assert await store.apply([out]) == [True]
    given = ids_of(await claims(store, *(f"t{n}" for n in range(7))))
    assert sorted(given) == sorted(row.sandbox_id for row in free)
    assert await store.apply([restored(out.result)]) == [True]
    assert ids_of(await claims(store, "last")) == [taken.sandbox_id]
    await check_invariants(store)


async def test_nobody_waits_for_a_row_that_another_holds(
    store: SqlPoolStore, database: CountingDatabase
) -> None:
    await fill(store, 4)
    await claims(store, "a")  # reads the others ahead
    by_name = sa.select(sandboxes).where(sandboxes.c.status == "available").order_by("name")
    async with asyncio.timeout(30), database._engine.begin() as other:
        held = (await other.execute(by_name.limit(1).with_for_update())).one().sandbox_id
        assert held not in ids_of(await claims(store, "b", "c"))
    assert ids_of(await claims(store, "d")) == [held]
    await check_invariants(store)


async def test_a_lease_that_is_over_is_ended_by_the_next_of_its_key(store: SqlPoolStore) -> None:
    await fill(store, 4)
    await claims(store, "a")
    much_later = NOW + 10**6
    again = await claims(store, "a", "b", now=much_later)
    assert [each and each.is_new for each in again] == [True, True]
    await check_invariants(store)


async def test_tracks_of_a_reservation_need_no_locks_either(
    store: SqlPoolStore, database: CountingDatabase
) -> None:
    await fill(store, 20)
    kept = [decide_reserved(row, "r", operator(NOW)) for row in (await everything(store))[:8]]
    assert all(await store.apply(kept))
    database.calls.clear()
    own = [Claim(f"t{n}", "key", NOW, reservations=("r",)) for n in range(10)]
    given = ids_of(await asyncio.gather(*map(store.claim, own[:8])))
    assert sorted(given) == sorted(each.result.sandbox_id for each in kept)
    assert database.calls == {"statements": 2}
    others = ids_of(await asyncio.gather(*map(store.claim, own[8:])))
    assert len({*given, *others}) == 10, "when none is kept any more, those that are free"
    await check_invariants(store)


async def test_two_processes_with_the_same_rows_in_their_hands_lease_each_once(
    store: SqlPoolStore, database: CountingDatabase
) -> None:
    await fill(store, 100)
    stores = [store, SqlPoolStore(database)]
    for each in stores:
        await claims(each, f"first-{id(each)}")
    tracks = [f"t{n}" for n in range(98)]
    halves = await asyncio.gather(claims(stores[0], *tracks[::2]), claims(stores[1], *tracks[1::2]))
    assert len(set(ids_of([*halves[0], *halves[1]]))) == 98
    assert await claims(store, "one too many") == [None]
    await check_invariants(store)
