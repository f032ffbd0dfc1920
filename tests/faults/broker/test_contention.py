"""The pool on DynamoDB under many callers and a lagging index, and what each call costs."""

import asyncio
import random
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.action_model import Action
from sandyard.broker.pool.jobs import Cleanup, Expiry
from sandyard.broker.pool.model import Claim, Claimed, Listed, Status
from sandyard.broker.pool.ports import SandboxFilter
from sandyard.broker.pool.provider_model import DeletionPolicy
from sandyard.broker.pool.stores.dynamo_prefetch import CandidatePrefetch
from sandyard.broker.pool.stores.index_scan import Found
from sandyard.broker.pool.sync import Sync
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from tests.fakes.provider import FakeProvider
from tests.faults.concurrent_claims import claim_all, sandboxes
from tests.faults.proxy import FaultProxy
from tests.faults.stores import in_state, store_at
from tests.support.broker.pools import (
    LAB_SEC,
    NOW,
    check_invariants,
    ended,
    everything,
    fill,
    free_sandboxes,
    row,
)
from tests.support.broker.services import new_broker, new_sync
from tests.support.clocks import ManualClock
from tests.support.storage.engines import PATIENT


class TestLaggingIndex:
    async def test_a_quick_retry_gets_the_same_sandbox_from_any_replica(
        self, proxy: FaultProxy, pool: PoolTable, direct: DynamoPoolStore
    ) -> None:
        await fill(direct, 20)
        proxy.set(index_lag_sec=5)
        async with store_at(proxy.url, pool) as one, store_at(proxy.url, pool) as other:
            first = await one.claim(Claim("track", "key", NOW))
            again = [await each.claim(Claim("track", "key", NOW)) for each in (one, other)]
        assert first is not None
        assert first.is_new
        assert again == [Claimed(first.lease, is_new=False)] * 2
        assert len(await in_state(direct, Status.ALLOCATED)) == 1

    async def test_one_key_from_everywhere_at_once_gets_one_sandbox(
        self, proxy: FaultProxy, pool: PoolTable, direct: DynamoPoolStore
    ) -> None:
        await fill(direct, 20)
        proxy.set(index_lag_sec=5)
        async with AsyncExitStack() as stack:
            stores = [
                await stack.enter_async_context(store_at(proxy.url, pool, policy=PATIENT))
                for _ in range(4)
            ]
            claims = await asyncio.gather(
                *(each.claim(Claim("track", "key", NOW)) for each in stores * 10)
            )
        assert len(sandboxes(claims)) == 1
        assert sum(claim is not None and claim.is_new for claim in claims) == 1
        await check_invariants(direct)

    @pytest.mark.parametrize("replicas", [1, 3])
    async def test_as_many_callers_as_free_sandboxes_get_one_each(
        self, proxy: FaultProxy, pool: PoolTable, direct: DynamoPoolStore, replicas: int
    ) -> None:
        await fill(direct, 100)
        proxy.set(index_lag_sec=4)
        async with AsyncExitStack() as stack:
            stores = [
                await stack.enter_async_context(store_at(proxy.url, pool, policy=PATIENT))
                for _ in range(replicas)
            ]
            assert len(sandboxes(await claim_all(stores, 100))) == 100
            assert await stores[0].claim(Claim("late", "late", NOW)) is None
        await check_invariants(direct)

    async def test_what_the_index_still_shows_as_due_is_not_done_twice(
        self, proxy: FaultProxy, pool: PoolTable, direct: DynamoPoolStore, clock: ManualClock
    ) -> None:
        await fill(direct, 3)
        async with store_at(proxy.url, pool) as store:
            await claim_all([store], 2)
            proxy.set(index_lag_sec=60)
            clock.advance(2 * LAB_SEC)
            reports = [
                await Expiry(store, clock=clock, metrics=metrics(), grace_sec=0).run()
                for _ in range(2)
            ]
        assert [report.expired for report in reports] == [2, 0]
        await check_invariants(direct)

    async def test_a_sync_by_an_old_index_brings_nothing_back(
        self, proxy: FaultProxy, pool: PoolTable, direct: DynamoPoolStore, clock: ManualClock
    ) -> None:
        provider = FakeProvider()
        provider.sandboxes = {f"e{n}": Listed(f"e{n}", f"lab-{n}") for n in range(6)}
        provider.list_includes_deleted = True
        async with store_at(proxy.url, pool) as store:
            await sync(store, provider, clock).run()
            proxy.set(index_lag_sec=60)
            [taken] = sandboxes(await claim_all([store], 1))
            before = await row(direct, taken)
            await store.apply([ended(before)])
            proxy.set(index_lag_sec=0)
            assert (await cleanup(store, provider, clock).run()).deleted == 1
            proxy.set(index_lag_sec=60)
            again = await sync(store, provider, clock).run()
        assert again.added == 0
        assert taken not in {each.sandbox_id for each in await everything(direct)}


class TestCallersWhoGoAway:
    async def test_one_that_leaves_as_candidates_arrive_disturbs_nobody(self) -> None:
        arrived = asyncio.Event()

        async def scan(_wanted: int) -> AsyncIterator[Found]:
            await arrived.wait()
            yield Found(free_sandboxes(1), is_own=True)

        async def still_free(ids: Collection[str]) -> set[str]:
            return set(ids)

        prefetch = CandidatePrefetch(scan, still_free=still_free, size=15)
        leaving, staying = (asyncio.create_task(prefetch.take()) for _ in range(2))
        for _ in range(10):  # until both wait
            await asyncio.sleep(0)
        arrived.set()
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        candidate = await asyncio.wait_for(staying, 20)
        assert candidate is not None
        assert [candidate] == free_sandboxes(1)

    async def test_all_that_are_free_are_still_given_out_after_many_gave_up(
        self, proxy: FaultProxy, store: DynamoPoolStore, direct: DynamoPoolStore
    ) -> None:
        await fill(direct, 30)
        claims = [asyncio.create_task(store.claim(Claim(f"t{n}", "k", NOW))) for n in range(30)]
        while not proxy.calls["TransactWriteItems"]:
            await asyncio.sleep(0.001)
        for claim in claims[::2]:
            claim.cancel()
        await asyncio.gather(*claims, return_exceptions=True)
        again = await asyncio.gather(*(store.claim(Claim(f"t{n}", "k", NOW)) for n in range(30)))
        assert len(sandboxes(again)) == 30
        await check_invariants(direct)


class TestLastOne:
    async def test_a_repeat_does_not_take_the_last_from_one_who_needs_it(
        self, store: DynamoPoolStore, direct: DynamoPoolStore
    ) -> None:
        """The repeat is handed the only candidate and gives it back; the other must wait for it."""
        await fill(direct, 2)
        first = await direct.claim(Claim("a", "a", NOW))
        assert first is not None
        repeat, fresh = await asyncio.gather(
            store.claim(Claim("a", "a", NOW)), store.claim(Claim("b", "b", NOW))
        )
        assert repeat == Claimed(first.lease, is_new=False)
        assert fresh is not None
        assert fresh.is_new


class TestCost:
    async def test_a_fresh_claim_and_a_repeat_are_one_call_each(
        self, proxy: FaultProxy, store: DynamoPoolStore, direct: DynamoPoolStore
    ) -> None:
        await fill(direct, 200)
        for _ in range(2):
            proxy.reset_counts()
            for number in range(100):
                assert await store.claim(Claim(f"t{number}", "key", NOW)) is not None
            assert sum(proxy.calls.values()) <= 120, proxy.calls

    async def test_a_repeat_on_an_empty_pool_is_one_call(
        self, proxy: FaultProxy, store: DynamoPoolStore, direct: DynamoPoolStore
    ) -> None:
        await fill(direct, 10)
        first = await claim_all([store], 10)
        assert await store.claim(Claim("late", "late", NOW)) is None
        proxy.reset_counts()
        for _ in range(10):
            repeats = await claim_all([store], 10)
            assert sandboxes(repeats) == sandboxes(first)
        assert sum(proxy.calls.values()) <= 120, proxy.calls

    async def test_a_claim_costs_the_same_in_a_larger_pool(
        self, proxy: FaultProxy, store: DynamoPoolStore, direct: DynamoPoolStore
    ) -> None:
        await fill(direct, 3000)
        proxy.reset_counts()
        for number in range(100):
            assert await store.claim(Claim(f"t{number}", "key", NOW)) is not None
        assert sum(proxy.calls.values()) <= 120, proxy.calls

    async def test_nothing_ever_scans_the_table(
        self,
        proxy: FaultProxy,
        store: DynamoPoolStore,
        clock: ManualClock,
    ) -> None:
        provider = FakeProvider()
        provider.sandboxes = {f"e{n}": Listed(f"e{n}", f"lab-{n}") for n in range(30)}
        broker = new_broker(store, clock=clock, metrics=metrics())
        await sync(store, provider, clock).run()
        leases = [(await broker.allocate(track_id=f"t{n}")).lease for n in range(10)]
        await broker.allocate(track_id="t0", name_prefix="lab")
        await broker.get_sandbox(track_id="t0", sandbox_id=leases[0].sandbox_id)
        await broker.mark_for_deletion(track_id="t0", sandbox_id=leases[0].sandbox_id)
        await broker.act(Action.RELEASE, sandbox_id=leases[1].sandbox_id)
        available = SandboxFilter(Status.AVAILABLE)
        [free] = (await store.page(available, limit=1, cursor=None)).items
        await broker.act(Action.QUARANTINE, sandbox_id=free.sandbox_id)
        await broker.act(Action.RESTORE, sandbox_id=free.sandbox_id)
        await store.page(SandboxFilter(), limit=50, cursor=None)
        await broker.inspect_sandbox(free.sandbox_id)
        await broker.stats()
        clock.advance(LAB_SEC)
        assert (await Expiry(store, clock=clock, metrics=metrics(), grace_sec=0).run()).expired == 8
        assert (await cleanup(store, provider, clock).run()).deleted == 10
        await sync(store, provider, clock).run(force=True)
        await store.check()
        assert proxy.total.arrived["TransactWriteItems"] > 30
        assert proxy.total.arrived["Query"] > 10
        assert not {"Scan", "ExecuteStatement"} & proxy.total.arrived.keys()


def metrics() -> BrokerMetrics:
    return BrokerMetrics(CollectorRegistry())


def sync(store: DynamoPoolStore, provider: FakeProvider, clock: ManualClock) -> Sync:
    return new_sync(store, provider, clock=clock, metrics=metrics(), lab_duration_hours=4)


def cleanup(store: DynamoPoolStore, provider: FakeProvider, clock: ManualClock) -> Cleanup:
    return Cleanup(
        store,
        provider,
        clock=clock,
        metrics=metrics(),
        policy=DeletionPolicy(max_attempts=3, backoff_base_sec=300, backoff_max_sec=3600),
        parallel=10,
        randomness=random.Random(1),
    )
