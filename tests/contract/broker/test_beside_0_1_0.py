"""A server of 0.1.0 that changes the same pool: it writes neither sequences nor events."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from sandyard.broker.pool.model import Claim, Sandbox, Status, Tombstone, decide_claim
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.stores.dynamo_items import (
    gone_key,
    lease_item,
    sandbox_item,
    sandbox_key,
    tombstone_item,
)
from sandyard.broker.pool.stores.sql_rows import values_of
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.broker.stores.tables import sandboxes
from sandyard.broker.verification import adopt
from sandyard.kit.clock import SystemClock
from sandyard.kit.sql.database import Database
from tests.support.broker.pools import (
    NOW,
    check_history,
    deleted,
    ended,
    fill,
    free_sandboxes,
    operator,
    quarantined,
    row,
)
from tests.support.storage.engines import SHARED_ENGINES, broker_database, pool_table


class OldServer(Protocol):
    async def add(self, sandbox: Sandbox) -> None: ...

    async def change(self, sandbox: Sandbox) -> None: ...

    async def delete(self, tombstone: Tombstone) -> None: ...


class OnSql:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, sandbox: Sandbox) -> None:
        values = values_of(sandbox)
        del values["sequence"]
        await self._database.write(lambda found: found.execute(sandboxes.insert().values(values)))

    async def change(self, entry: Sandbox | Tombstone) -> None:
        values = values_of(entry)
        del values["sequence"]
        update = sandboxes.update().where(sandboxes.c.sandbox_id == entry.sandbox_id)
        await self._database.write(lambda found: found.execute(update.values(values)))

    delete = change


class OnDynamo:
    def __init__(self, pool: PoolTable) -> None:
        self._pool = pool

    async def add(self, sandbox: Sandbox) -> None:
        item = sandbox_item(sandbox)
        del item["sequence"]
        await self._pool.table.put(item)

    async def change(self, sandbox: Sandbox) -> None:
        key = sandbox_key(sandbox.sandbox_id)
        stored = await self._pool.table.get(key)
        assert stored is not None
        await self._pool.table.put(sandbox_item(sandbox) | {"sequence": stored["sequence"]})
        if sandbox.status is Status.ALLOCATED:
            owner = sandbox.allocated_to_track or "", sandbox.idempotency_key or ""
            await self._pool.table.put(lease_item(*owner, sandbox.lease) | {"write_id": "old"})

    async def delete(self, tombstone: Tombstone) -> None:
        item = tombstone_item(tombstone)
        del item["sequence"]
        table, key = self._pool.table, sandbox_key(tombstone.sandbox_id)
        put = table.put_action(gone_key(tombstone.sandbox_id) | item)
        gone = table.delete_action(key, condition="attribute_exists(PK)", values={})
        await table.transact(gone, put)


@pytest.fixture(params=SHARED_ENGINES)
async def both(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[tuple[PoolStore, OldServer]]:
    if request.param == "dynamodb":
        async with pool_table(dynamo_url) as pool:
            store = DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=15)
            yield store, OnDynamo(pool)
        return
    async with broker_database(request.param, tmp_path, postgres_url) as database:
        yield SqlPoolStore(database), OnSql(database)


def leased(free: Sandbox, key: str = "k") -> Sandbox:
    """As 0.1.0 leases it, which stores no end."""
    return replace(decide_claim(free, Claim("old", key, NOW)).result, ends_at=None)


async def test_what_it_has_changed_is_not_changed_from_what_was_read_before(
    both: tuple[PoolStore, OldServer],
) -> None:
    store, old = both
    await fill(store, 1)
    [free] = free_sandboxes(1)
    before = await row(store, free.sandbox_id)
    await old.change(leased(before))
    assert await store.apply([quarantined(before)]) == [False]
    assert await store.apply([ended(before)]) == [False]
    assert await store.apply([deleted(before)]) == [False]
    assert not await store.apply_together(quarantined(before))
    assert (await row(store, free.sandbox_id)).status is Status.ALLOCATED


async def test_what_it_has_leased_is_leased_to_nobody_else_and_found_by_its_track(
    both: tuple[PoolStore, OldServer],
) -> None:
    store, old = both
    await fill(store, 2)
    first = await store.claim(Claim("new", "k", NOW))
    assert first is not None
    [other] = [
        each for each in free_sandboxes(2) if each.sandbox_id != first.lease.sandbox_id
    ]  # read ahead by the store
    await old.change(leased(await row(store, other.sandbox_id)))
    assert await store.claim(Claim("another", "k", NOW)) is None
    repeat = await store.claim(Claim("old", "k", NOW + 1))
    assert repeat is not None
    assert (repeat.is_new, repeat.lease.sandbox_id) == (False, other.sandbox_id)


async def test_what_it_did_is_adopted_when_it_is_gone(both: tuple[PoolStore, OldServer]) -> None:
    store, old = both
    await fill(store, 4)
    kept, changed, marked, gone = free_sandboxes(4)
    [added] = free_sandboxes(1, prefix="added")
    await old.add(added)
    await old.change(leased(await row(store, changed.sandbox_id)))
    await old.change(leased(await row(store, marked.sandbox_id), "another"))
    assert await store.apply([ended(await row(store, marked.sandbox_id))]) == [True]
    tombstone = deleted(await row(store, gone.sandbox_id)).result
    assert isinstance(tombstone, Tombstone)
    await old.delete(tombstone)
    with pytest.raises((AssertionError, KeyError)):
        await check_history(store)
    assert await adopt(store, operator(NOW)) == 4
    await check_history(store)
    assert await adopt(store, operator(NOW)) == 0
    assert await store.apply([quarantined(await row(store, kept.sandbox_id))]) == [True]
    assert await store.apply([ended(await row(store, changed.sandbox_id))]) == [True]
    assert isinstance(await store.find(gone.sandbox_id), Tombstone)
    await check_history(store)
