"""Claims on SQLite of what was read ahead: one statement for many, which a trigger carries out."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from sandyard.broker.pool.model import Status
from sandyard.broker.pool.stores.sql_rows import fold_status_counts
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.kit.sql.database import SqliteDatabase, T, Work
from tests.support.broker.pools import (
    check_invariants,
    claims,
    everything,
    fill,
    ids_of,
    quarantined,
)
from tests.support.storage.query_plans import scanned


class CountingDatabase(SqliteDatabase):
    """Counts what is asked of it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, schema=MIGRATIONS.part)
        self.calls: Counter[str] = Counter()

    async def write(self, work: Work[T]) -> T:
        self.calls["transactions"] += 1
        return await super().write(work)

    async def run_statement(self, work: Work[T]) -> T:
        self.calls["statements"] += 1
        return await super().run_statement(work)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[CountingDatabase]:
    database = CountingDatabase(tmp_path / "broker.db")
    await MIGRATIONS.upgrade(database)
    yield database
    await database.close()


@pytest.fixture
def store(database: CountingDatabase) -> SqlPoolStore:
    return SqlPoolStore(database)


async def test_a_batch_is_one_statement(store: SqlPoolStore, database: CountingDatabase) -> None:
    await fill(store, 100)
    database.calls.clear()
    given = [
        each
        for batch in range(8)
        for each in ids_of(await claims(store, *(f"{batch}-{n}" for n in range(8))))
    ]
    assert len(set(given)) == 64
    assert database.calls == {"statements": 8 + 1}, "and one that reads ahead"
    await check_invariants(store)


async def test_keys_with_a_lease_and_changed_rows_are_passed_over(store: SqlPoolStore) -> None:
    """Each without an event, and without being counted."""
    await fill(store, 8)
    [first] = ids_of(await claims(store, "a"))  # reads the others ahead
    taken, *free = [row for row in await everything(store) if row.sandbox_id != first]
    assert await store.apply([quarantined(taken)]) == [True]
    claimed = await claims(store, "a", *(f"t{n}" for n in range(6)), "one too many")
    assert [each and each.is_new for each in claimed] == [False, *[True] * 6, None]
    assert ids_of(claimed)[0] == first
    assert sorted(ids_of(claimed)[1:]) == sorted(row.sandbox_id for row in free)
    counts = (await store.counts()).by_status
    assert (counts[Status.ALLOCATED], counts[Status.STALE], counts[Status.AVAILABLE]) == (7, 1, 0)
    await check_invariants(store)


async def test_the_counts_stay_right_when_they_are_folded(
    store: SqlPoolStore, database: CountingDatabase
) -> None:
    await fill(store, 12)
    for batch in range(3):
        await claims(store, *(f"{batch}-{n}" for n in range(3)))
        await database.write(fold_status_counts)
    counts = (await store.counts()).by_status
    assert (counts[Status.ALLOCATED], counts[Status.AVAILABLE]) == (9, 3)
    await check_invariants(store)


async def test_the_trigger_reads_no_whole_table(
    store: SqlPoolStore, database: CountingDatabase
) -> None:
    await fill(store, 50)
    await claims(store, "a")

    def plans(connection: sa.Connection) -> list[str]:
        [(trigger,)] = connection.exec_driver_sql(
            "SELECT sql FROM sqlite_temp_master WHERE type = 'trigger'"
        ).all()
        body = re.sub(r"NEW\.\w+", "'x'", trigger.partition("BEGIN")[2].rpartition("END")[0])
        connection.exec_driver_sql("ANALYZE")
        return [
            str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}").all())
            for statement in body.split(";")
            if statement.strip()
        ]

    found = await database.write(plans)
    assert len(found) == 4
    assert "sandboxes_lease" in found[0]
    for plan in found:
        assert not {"sandboxes", "held", "events", "tally"}.intersection(scanned(plan)), plan
