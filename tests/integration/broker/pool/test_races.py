"""Many callers and many replicas at the same instant, on the real engines."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.action_model import Action
from sandyard.broker.pool.errors import NoSandboxesAvailableError, TransitionNotAllowedError
from sandyard.broker.pool.jobs import Expiry
from sandyard.broker.pool.model import Claim, Claimed, Listed, Status, Tombstone
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.sync import Sync
from sandyard.broker.provider.errors import CreationNotSupportedError
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.kit.errors import ForbiddenError
from sandyard.kit.sql.database import Database, PostgresDatabase, SqliteDatabase
from tests.support.broker.pools import (
    LAB_SEC,
    NOW,
    check_invariants,
    delete,
    everything,
    fill,
    free_sandboxes,
    row,
)
from tests.support.broker.services import new_broker, new_sync
from tests.support.clocks import ManualClock
from tests.support.storage.engines import SQL_ENGINES, broker_database, create_database

REPLICAS = {"sqlite": 1, "postgresql": 4}


@pytest.fixture(params=SQL_ENGINES)
async def replicas(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str
) -> AsyncIterator[list[SqlPoolStore]]:
    """Stores with connections of their own on one database, as separate processes would have."""
    databases: list[Database]
    if request.param == "sqlite":
        databases = [SqliteDatabase(tmp_path / "broker.db", schema="broker")]
    else:
        url = sa.make_url(await create_database(postgres_url))
        databases = [PostgresDatabase(url, pool_size=8) for _ in range(REPLICAS["postgresql"])]
    try:
        await MIGRATIONS.upgrade(databases[0])
        yield [SqlPoolStore(database) for database in databases]
    finally:
        for database in databases:
            await database.close()


class FixedList:
    """A provider whose list never changes and whose deletions always succeed."""

    can_create = False

    def __init__(self, listed: Sequence[Listed]) -> None:
        self._listed = listed

    async def list_sandboxes(self) -> Sequence[Listed]:
        return self._listed

    async def delete_sandbox(self, external_id: str) -> None:
        pass

    async def create_sandbox(self, name: str) -> Listed:
        raise CreationNotSupportedError(details={"name": name})

    async def has_sandbox(self, external_id: str) -> bool:
        return any(each.external_id == external_id for each in self._listed)

    async def close(self) -> None:
        pass


def new_metrics() -> BrokerMetrics:
    return BrokerMetrics(CollectorRegistry())


def sync_of(store: PoolStore, listed: Sequence[Listed]) -> Sync:
    return new_sync(
        store,
        FixedList(listed),
        clock=ManualClock(NOW + 60),
        metrics=new_metrics(),
        lab_duration_hours=4,
    )


async def claims(
    replicas: Sequence[PoolStore], count: int, *, track: str | None = None
) -> list[Claimed | None]:
    """`count` claims at once, spread over the replicas."""
    requests = [Claim(track or f"t{n}", track or f"t{n}", NOW) for n in range(count)]
    return await asyncio.gather(
        *(replicas[n % len(replicas)].claim(request) for n, request in enumerate(requests))
    )


async def test_a_thousand_callers_on_a_thousand_sandboxes_all_get_one(
    replicas: list[SqlPoolStore],
) -> None:
    await fill(replicas[0], 1000)
    results = await claims(replicas, 1000)
    assert None not in results
    assert len({result.lease.sandbox_id for result in results if result}) == 1000
    await check_invariants(replicas[0])


async def test_a_thousand_callers_on_six_hundred_sandboxes_leave_four_hundred_without(
    replicas: list[SqlPoolStore],
) -> None:
    await fill(replicas[0], 600)
    results = await claims(replicas, 1000)
    given = [result.lease.sandbox_id for result in results if result is not None]
    assert len(given) == 600
    assert len(set(given)) == 600
    await check_invariants(replicas[0])


async def test_fifty_calls_of_one_track_get_one_sandbox(replicas: list[SqlPoolStore]) -> None:
    await fill(replicas[0], 60)
    results = await claims(replicas, 50, track="same")
    assert Counter(result.is_new for result in results if result) == {True: 1, False: 49}
    assert len({result.lease for result in results if result}) == 1
    assert (await replicas[0].counts()).by_status[Status.ALLOCATED] == 1
    await check_invariants(replicas[0])


async def test_the_last_sandbox_goes_to_one_of_many_retried_tracks(
    replicas: list[SqlPoolStore],
) -> None:
    await fill(replicas[0], 1)
    requests = [Claim(f"t{n % 10}", "k", NOW) for n in range(200)]
    results = await asyncio.gather(
        *(replicas[n % len(replicas)].claim(request) for n, request in enumerate(requests))
    )
    winners = {
        request.track_id for request, result in zip(requests, results, strict=True) if result
    }
    assert len(winners) == 1
    assert sum(result.is_new for result in results if result) == 1
    await check_invariants(replicas[0])


async def test_expired_leases_claimed_again_at_once_leak_nothing(
    replicas: list[SqlPoolStore],
) -> None:
    await fill(replicas[0], 40)
    await claims(replicas, 20)
    later = NOW + LAB_SEC
    requests = [Claim(f"t{n % 20}", f"t{n % 20}", later) for n in range(160)]
    results = await asyncio.gather(
        *(replicas[n // 20 % len(replicas)].claim(request) for n, request in enumerate(requests))
    )
    assert None not in results
    assert sum(result.is_new for result in results if result) == 20
    counts = (await replicas[0].counts()).by_status
    assert (counts[Status.ALLOCATED], counts[Status.PENDING_DELETION]) == (20, 20)
    assert counts[Status.AVAILABLE] == 0
    await check_invariants(replicas[0])


async def test_a_sync_that_runs_beside_claims_takes_nothing_from_anyone(
    replicas: list[SqlPoolStore],
) -> None:
    await fill(replicas[0], 300)
    sync = sync_of(replicas[-1], [])
    results, report = await asyncio.gather(claims(replicas, 300), sync.run(force=True))
    leases = {result.lease.sandbox_id for result in results if result}
    for sandbox_id in leases:
        assert (await row(replicas[0], sandbox_id)).status is Status.ALLOCATED
    assert len(leases) + report.made_stale == 300
    await check_invariants(replicas[0])


async def test_a_quarantine_and_a_claim_of_the_same_row_have_one_winner(
    replicas: list[SqlPoolStore],
) -> None:
    await fill(replicas[0], 100)
    rows = [entry.sandbox_id for entry in await everything(replicas[0])]
    operator = new_broker(replicas[-1], clock=ManualClock(NOW), metrics=new_metrics())
    claiming = asyncio.create_task(claims(replicas, 60))
    outcomes = await asyncio.gather(
        *(_outcome(operator.act(Action.QUARANTINE, sandbox_id=each)) for each in rows)
    )
    leased = sum(result is not None for result in await claiming)
    assert leased + sum(outcome is None for outcome in outcomes) == 100
    for outcome in outcomes:
        assert outcome is None or isinstance(outcome, TransitionNotAllowedError)
    await check_invariants(replicas[0])


async def _outcome(work: Awaitable[object]) -> Exception | None:
    try:
        await work
    except Exception as error:
        return error
    return None


async def test_a_mark_and_an_expiry_of_the_same_row_agree(replicas: list[SqlPoolStore]) -> None:
    """Marks come in the last second of the window, by a clock that is behind the job's."""
    await fill(replicas[0], 100)
    results = await claims(replicas, 100)
    tracks = new_broker(replicas[0], clock=ManualClock(NOW + LAB_SEC - 1), metrics=new_metrics())
    expiry = Expiry(
        replicas[-1], clock=ManualClock(NOW + LAB_SEC), metrics=new_metrics(), grace_sec=0
    )
    marks = [
        tracks.mark_for_deletion(track_id=f"t{n}", sandbox_id=result.lease.sandbox_id)
        for n, result in enumerate(results)
        if result
    ]
    expiring = asyncio.create_task(expiry.run())
    marked = await asyncio.gather(*marks)
    report = await expiring
    times = Counter(mark.deletion_requested_at for mark in marked)
    assert times[NOW + LAB_SEC] == report.expired
    assert times.total() == 100
    assert (await replicas[0].counts()).by_status[Status.PENDING_DELETION] == 100
    for mark in marked:
        stored = await row(replicas[0], mark.sandbox_id)
        assert stored.deletion_requested_at == mark.deletion_requested_at
    await check_invariants(replicas[0])


async def test_what_a_cleanup_deletes_beside_a_sync_stays_deleted(
    replicas: list[SqlPoolStore],
) -> None:
    """The provider's list is late and still has them all."""
    new = free_sandboxes(200)
    await fill(replicas[0], 200)
    broker = new_broker(replicas[0], clock=ManualClock(NOW), metrics=new_metrics())
    doomed = []
    for n in range(100):
        lease = (await broker.allocate(track_id=f"t{n}")).lease
        await broker.mark_for_deletion(track_id=f"t{n}", sandbox_id=lease.sandbox_id)
        doomed.append(await row(replicas[0], lease.sandbox_id))
    late_list = [Listed(each.external_id, each.name) for each in new]
    deletions = [delete(replicas[0], each) for each in doomed]
    *outcomes, _, _ = await asyncio.gather(
        *deletions, sync_of(replicas[-1], late_list).run(), sync_of(replicas[0], late_list).run()
    )
    assert all(outcomes)
    await sync_of(replicas[0], late_list).run()
    for each in doomed:
        assert isinstance(await replicas[0].find(each.sandbox_id), Tombstone)
    assert (await replicas[0].counts()).by_status[Status.AVAILABLE] == 100
    await check_invariants(replicas[0])


async def test_callers_that_go_away_touch_no_other(replicas: list[SqlPoolStore]) -> None:
    await fill(replicas[0], 200)
    tasks = [
        asyncio.create_task(replicas[n % len(replicas)].claim(Claim(f"t{n}", "k", NOW)))
        for n in range(200)
    ]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    randomness = random.Random(7)
    gone = {n for n in range(200) if randomness.random() < 0.5}
    for n in gone:
        tasks[n].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for n, result in enumerate(results):
        assert isinstance(result, Claimed) or (n in gone)
    await check_invariants(replicas[0])
    again = [await replicas[0].claim(Claim(f"t{n}", "k", NOW)) for n in range(200)]
    assert len({result.lease.sandbox_id for result in again if result}) == 200
    await check_invariants(replicas[0])


async def test_a_slow_reader_holds_nobody_up(
    replicas: list[SqlPoolStore], database: Database
) -> None:
    store = SqlPoolStore(database)
    await fill(store, 50)
    reading, done = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow_on_sqlite(connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT count(*) FROM broker.sandboxes")).all()
        loop.call_soon_threadsafe(reading.set)
        asyncio.run_coroutine_threadsafe(done.wait(), loop).result(30)

    if isinstance(database, SqliteDatabase):
        reader = asyncio.create_task(database.read(slow_on_sqlite))
        await reading.wait()
        results = await claims([store], 50)
        done.set()
        await reader
    else:
        assert isinstance(database, PostgresDatabase)
        async with database._engine.connect() as connection:
            await connection.execute(sa.text("SELECT count(*) FROM broker.sandboxes"))
            results = await claims([store], 50)
    assert None not in results


async def test_the_same_keys_at_all_replicas_in_any_order_get_one_lease_each(
    replicas: list[SqlPoolStore],
) -> None:
    """As callers that were not answered in time ask elsewhere: batches that share their keys."""
    await fill(replicas[0], 300)
    orders = [range(60), range(59, -1, -1), [*range(30, 60), *range(30)], range(60)]
    results = await asyncio.gather(
        *(
            replicas[n % len(replicas)].claim(Claim(f"t{key}", "key", NOW))
            for keys in zip(*orders, strict=True)
            for n, key in enumerate(keys)
        )
    )
    leases = {result.lease for result in results if result}
    assert None not in results
    assert len(leases) == 60
    assert sum(result.is_new for result in results if result) == 60
    await check_invariants(replicas[0])


async def test_a_claim_waits_for_the_only_free_row_while_another_transaction_locks_it(
    tmp_path: Path, postgres_url: str
) -> None:
    async with broker_database("postgresql", tmp_path, postgres_url, pool_size=4) as database:
        store = SqlPoolStore(database)
        await fill(store, 1)
        locked, released = asyncio.Event(), asyncio.Event()
        lock = sa.text("SELECT 1 FROM broker.sandboxes FOR UPDATE")

        async def wait_for_release(_: object) -> None:
            locked.set()
            await released.wait()

        other = asyncio.create_task(
            database.hold(lambda connection: connection.execute(lock).close(), wait_for_release)
        )
        await locked.wait()
        claim = asyncio.create_task(store.claim(Claim("track", "key", NOW)))
        await asyncio.wait([claim], timeout=0.5)
        assert not claim.done(), "it must wait for the locked row before it says that none is free"
        released.set()
        await other
        assert await claim is not None


async def test_refusals_are_told_as_what_they_are(replicas: list[SqlPoolStore]) -> None:
    broker = new_broker(replicas[0], clock=ManualClock(NOW), metrics=new_metrics())
    await fill(replicas[0], 1)
    lease = (await broker.allocate(track_id="owner")).lease
    outcomes = await asyncio.gather(
        *(
            broker.mark_for_deletion(track_id=f"t{n}", sandbox_id=lease.sandbox_id)
            for n in range(20)
        ),
        *(broker.allocate(track_id=f"t{n}") for n in range(20)),
        return_exceptions=True,
    )
    assert all(isinstance(outcome, ForbiddenError) for outcome in outcomes[:20])
    assert all(isinstance(outcome, NoSandboxesAvailableError) for outcome in outcomes[20:])
