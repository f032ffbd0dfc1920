"""Rows as 0.1.0 wrote them, without a sequence and without events, met by claims."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from sandyard.broker.pool.model import Claim, Sandbox, Status, decide_claim
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.stores.dynamo_items import lease_item, sandbox_key
from sandyard.broker.pool.stores.sql_rows import values_of
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.broker.stores.tables import sandboxes
from sandyard.kit.clock import SystemClock
from sandyard.kit.events import Effect, fold
from sandyard.kit.transitions import state_of
from tests.support.broker.pools import LAB_SEC, NOW, free_sandboxes, row
from tests.support.storage.engines import STORE_ENGINES, broker_database, pool_table

Put = Callable[[Sandbox], Awaitable[None]]
"""Writes a row as 0.1.0 did, with its lease if it is allocated."""


@pytest.fixture(params=STORE_ENGINES)
async def old(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str, dynamo_url: str
) -> AsyncIterator[tuple[PoolStore, Put]]:
    if request.param == "dynamodb":
        async with pool_table(dynamo_url) as pool:

            async def put_item(sandbox: Sandbox) -> None:
                item = sandbox_key(sandbox.sandbox_id) | asdict(sandbox)
                del item["sequence"]
                await pool.table.put(item)
                if sandbox.status is Status.ALLOCATED:
                    owner = sandbox.allocated_to_track or "", sandbox.idempotency_key or ""
                    await pool.table.put(lease_item(*owner, sandbox.lease) | {"write_id": "old"})

            yield DynamoPoolStore(pool, clock=SystemClock(), prefetch_size=15), put_item
        return
    async with broker_database(request.param, tmp_path, postgres_url) as database:

        async def put_row(sandbox: Sandbox) -> None:
            insert = sandboxes.insert().values(values_of(sandbox) | {"sequence": 0})
            await database.write(lambda connection: connection.execute(insert))

        yield SqlPoolStore(database), put_row


async def check_first_event(store: PoolStore, sandbox_id: str, kind: str) -> None:
    """The first event of such a row holds its whole state, and its sequence begins at 1."""
    [event] = (await store.events.state_events([sandbox_id]))[sandbox_id]
    assert (event.kind, event.effect, event.sequence) == (kind, Effect.FULL, 1)
    there = await row(store, sandbox_id)
    assert (fold([event]), there.sequence) == (state_of(there), 1)


async def test_a_free_one_is_leased_and_its_repeat_found(old: tuple[PoolStore, Put]) -> None:
    store, put = old
    [free] = free_sandboxes(1)
    await put(free)
    claimed = await store.claim(Claim("t", "k", NOW))
    assert claimed is not None
    assert (claimed.is_new, claimed.lease.sandbox_id) == (True, free.sandbox_id)
    await check_first_event(store, free.sandbox_id, "lease.created")
    repeat = await store.claim(Claim("t", "k", NOW + 1))
    assert repeat is not None
    assert (repeat.is_new, repeat.lease) == (False, claimed.lease)


async def test_an_expired_one_ends_when_its_key_claims_another(
    old: tuple[PoolStore, Put],
) -> None:
    store, put = old
    first, free = free_sandboxes(2)
    leased = decide_claim(first, Claim("t", "k", NOW)).result
    await put(leased)
    await put(free)
    repeat = await store.claim(Claim("t", "k", NOW + LAB_SEC - 1))
    assert repeat is not None
    assert (repeat.is_new, repeat.lease) == (False, leased.lease)
    claimed = await store.claim(Claim("t", "k", NOW + LAB_SEC))
    assert claimed is not None
    assert (claimed.is_new, claimed.lease.sandbox_id) == (True, free.sandbox_id)
    await check_first_event(store, first.sandbox_id, "lease.ended")
    await check_first_event(store, free.sandbox_id, "lease.created")
    assert (await row(store, first.sandbox_id)).status is Status.PENDING_DELETION
