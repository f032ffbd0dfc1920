"""The pool on DynamoDB while its engine loses answers, refuses, stalls or is cut off."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.action_model import Action
from sandyard.broker.pool.jobs import Cleanup, Expiry
from sandyard.broker.pool.model import Claim, Claimed, Sandbox, Status
from sandyard.broker.pool.ports import SandboxFilter
from sandyard.broker.pool.provider_model import DeletionPolicy
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.broker.stores.dynamodb import DynamoPoolStore
from sandyard.kit.dynamo.client import DynamoPolicy
from sandyard.kit.dynamo.job_leases import DynamoJobLeases
from sandyard.kit.errors import UnavailableError
from tests.fakes.provider import FakeProvider
from tests.faults.proxy import FaultProxy
from tests.faults.stores import IMPATIENT, in_state, store_at, table_at
from tests.support.broker import pools
from tests.support.broker.pools import LAB_SEC, NOW, check_invariants, fill, row
from tests.support.broker.services import new_broker
from tests.support.clocks import ManualClock
from tests.support.job_runs import finished
from tests.support.storage.engines import PATIENT

TROUBLES: dict[str, dict[str, Any]] = {
    "throttled": {"throttle": 1},
    "conflicts": {"cancel": 1},
    "errors": {"error": 1},
    "resets": {"reset": 1},
    "dropped answers": {"drop": 1},
    "time-outs": {"delay": 1, "delay_sec": 60},
}


async def leased(store: DynamoPoolStore, track: str, *, now: int = NOW) -> Claimed:
    claimed = await store.claim(Claim(track, track, now))
    assert claimed is not None
    return claimed


async def allocated(store: DynamoPoolStore, track: str) -> Sandbox:
    return await row(store, (await leased(store, track)).lease.sandbox_id)


class TestDroppedAnswers:
    async def test_a_claim_finds_its_own_write(
        self, store: DynamoPoolStore, direct: DynamoPoolStore, proxy: FaultProxy
    ) -> None:
        await fill(direct, 5)
        proxy.set(drop=1, times=1, only=["TransactWriteItems"])
        claimed = await leased(store, "track")
        assert claimed.is_new
        assert proxy.total.injected == {"drop": 1}
        [taken] = await in_state(direct, Status.ALLOCATED)
        assert taken.sandbox_id == claimed.lease.sandbox_id
        assert await leased(store, "track") == Claimed(claimed.lease, is_new=False)
        await check_invariants(direct)

    async def test_a_claim_after_an_expired_one_finds_its_own_write(
        self, store: DynamoPoolStore, direct: DynamoPoolStore, proxy: FaultProxy
    ) -> None:
        await fill(direct, 5)
        old = (await leased(store, "track")).lease
        proxy.set(drop=1, times=1, only=["TransactWriteItems"])
        later = NOW + LAB_SEC
        renewed = await leased(store, "track", now=later)
        assert renewed.is_new
        assert renewed.lease.sandbox_id != old.sandbox_id
        assert (await row(direct, old.sandbox_id)).status is Status.PENDING_DELETION
        assert len(await in_state(direct, Status.ALLOCATED)) == 1
        await check_invariants(direct)

    async def test_a_repeat_gives_the_same_lease(
        self, store: DynamoPoolStore, direct: DynamoPoolStore, proxy: FaultProxy
    ) -> None:
        await fill(direct, 5)
        claimed = await leased(store, "track")
        proxy.set(drop=1, times=2)
        assert await leased(store, "track") == Claimed(claimed.lease, is_new=False)

    async def test_a_mark_answers_as_if_nothing_had_happened(
        self, store: DynamoPoolStore, direct: DynamoPoolStore, proxy: FaultProxy, clock: ManualClock
    ) -> None:
        await fill(direct, 2)
        sandbox = await allocated(store, "track")
        broker = new_broker(store, clock=clock, metrics=BrokerMetrics(CollectorRegistry()))
        proxy.set(drop=1, times=1, only=["TransactWriteItems"])
        marked = await broker.mark_for_deletion(track_id="track", sandbox_id=sandbox.sandbox_id)
        assert marked.status == Status.PENDING_DELETION
        again = await leased(store, "track")
        assert again.is_new
        await check_invariants(direct)

    @pytest.mark.parametrize("action", [Action.QUARANTINE, Action.RELEASE])
    async def test_an_operator_sees_the_action_done(
        self,
        action: Action,
        store: DynamoPoolStore,
        direct: DynamoPoolStore,
        proxy: FaultProxy,
        clock: ManualClock,
    ) -> None:
        await fill(direct, 1)
        [sandbox] = await pools.everything(direct)
        if action is Action.RELEASE:
            sandbox = await allocated(store, "track")
        broker = new_broker(store, clock=clock, metrics=BrokerMetrics(CollectorRegistry()))
        proxy.set(drop=1, times=1, only=["UpdateItem", "TransactWriteItems"])
        changed = await broker.act(action, sandbox_id=sandbox.sandbox_id)
        assert proxy.total.injected == {"drop": 1}
        assert await row(direct, sandbox.sandbox_id) == changed

    async def test_an_operator_sees_a_release_done_though_the_sandbox_is_deleted_since(
        self, direct: DynamoPoolStore, pool: PoolTable, proxy: FaultProxy, clock: ManualClock
    ) -> None:
        await fill(direct, 1)
        sandbox = await allocated(direct, "track")
        proxy.set(drop=1, times=1, only=["TransactWriteItems"])
        proxy.at_drop = proxy.gate.clear
        async with store_at(proxy.url, pool, policy=PATIENT) as store:
            broker = new_broker(store, clock=clock, metrics=BrokerMetrics(CollectorRegistry()))
            acting = asyncio.create_task(broker.act(Action.RELEASE, sandbox_id=sandbox.sandbox_id))
            while (released := await row(direct, sandbox.sandbox_id)) == sandbox:
                await asyncio.sleep(0.01)
            await pools.delete(direct, released)
            proxy.gate.set()
            assert await acting == released

    async def test_expiry_counts_what_it_ended(
        self, store: DynamoPoolStore, direct: DynamoPoolStore, proxy: FaultProxy, clock: ManualClock
    ) -> None:
        await fill(direct, 3)
        await leased(store, "track")
        clock.advance(LAB_SEC + 60)
        metrics = BrokerMetrics(CollectorRegistry())
        proxy.set(drop=1, times=1, only=["TransactWriteItems"])
        report = await Expiry(store, clock=clock, metrics=metrics, grace_sec=60).run()
        assert report.expired == 1
        await check_invariants(direct)

    async def test_a_deletion_is_known_as_done(
        self, store: DynamoPoolStore, direct: DynamoPoolStore, proxy: FaultProxy
    ) -> None:
        await fill(direct, 1)
        [sandbox] = await pools.everything(direct)
        proxy.set(drop=1, times=1, only=["TransactWriteItems"])
        assert await pools.delete(store, sandbox)
        assert await direct.find(sandbox.sandbox_id) == pools.deleted(sandbox).after

    async def test_added_rows_are_counted(
        self, store: DynamoPoolStore, direct: DynamoPoolStore, proxy: FaultProxy
    ) -> None:
        proxy.set(drop=1, times=3, only=["TransactWriteItems"])
        assert sum(await store.apply(pools.discoveries(10))) == 10
        assert len(await pools.everything(direct)) == 10

    async def test_counts_are_right(
        self, proxy: FaultProxy, pool: PoolTable, direct: DynamoPoolStore, clock: ManualClock
    ) -> None:
        await fill(direct, 4)
        proxy.set(drop=1, times=1, only=["UpdateItem"])
        async with table_at(proxy.url, pool) as table:
            store = DynamoPoolStore(table, clock=clock, prefetch_size=15)
            assert (await store.counts()).by_status[Status.AVAILABLE] == 4

    async def test_a_job_is_acquired_renewed_and_given_up_once(
        self, proxy: FaultProxy, pool: PoolTable
    ) -> None:
        async with table_at(proxy.url, pool) as table:
            leases = DynamoJobLeases(table.table)
            proxy.set(drop=1, times=1)
            assert await leases.acquire("sync", holder="a", now=NOW + 0.25, held_until=NOW + 60)
            assert not await leases.acquire("sync", holder="b", now=NOW + 1, held_until=NOW + 60)
            proxy.set(times=1)
            assert await leases.renew("sync", holder="a", held_until=NOW + 90)
            proxy.set(times=1)
            await leases.release("sync", holder="a", finished_at=NOW + 5)
            assert await leases.acquire("sync", holder="b", now=NOW + 6, held_until=NOW + 60)
            assert await finished(leases, ["sync"]) == {"sync": NOW + 5}
        assert proxy.total.injected == {"drop": 3}


FEW_TROUBLES = ("throttled", "dropped answers")
EVERY_TROUBLE = [
    each if each in FEW_TROUBLES else pytest.param(each, marks=pytest.mark.torture)
    for each in TROUBLES
]


class TestTrouble:
    @pytest.fixture(params=EVERY_TROUBLE)
    async def trouble(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        found: dict[str, Any] = TROUBLES[request.param]
        return found

    async def test_a_claim_is_tried_a_few_times_and_then_unavailable(
        self,
        store: DynamoPoolStore,
        direct: DynamoPoolStore,
        proxy: FaultProxy,
        trouble: dict[str, Any],
    ) -> None:
        await fill(direct, 20)
        await leased(store, "first")
        proxy.reset_counts()
        proxy.set(**trouble)
        async with asyncio.timeout(30):  # the calls that hang would take longer
            with pytest.raises(UnavailableError):
                await store.claim(Claim("track", "track", NOW))
        assert 2 <= sum(proxy.calls.values()) <= 100

    async def test_afterwards_every_free_sandbox_is_found_again(
        self,
        store: DynamoPoolStore,
        direct: DynamoPoolStore,
        proxy: FaultProxy,
        trouble: dict[str, Any],
    ) -> None:
        await fill(direct, 10)
        await leased(store, "first")
        proxy.set(**trouble)
        claims = [store.claim(Claim(f"t{n}", f"t{n}", NOW)) for n in range(9)]
        for outcome in await asyncio.gather(*claims, return_exceptions=True):
            assert isinstance(outcome, UnavailableError)
        proxy.calm()
        await fill(direct, 1, prefix="new")
        claims = [store.claim(Claim(f"t{n}", f"t{n}", NOW)) for n in range(10)]
        assert None not in await asyncio.gather(*claims)
        await check_invariants(direct)
        assert len(await in_state(direct, Status.ALLOCATED)) == 11

    @pytest.mark.parametrize(
        "name", [each for each in EVERY_TROUBLE if "conflicts" not in str(each)]
    )
    async def test_no_read_mistakes_an_outage_for_nothing(
        self, store: DynamoPoolStore, direct: DynamoPoolStore, proxy: FaultProxy, name: str
    ) -> None:
        await fill(direct, 1)
        proxy.set(**TROUBLES[name])
        reads = [
            store.claim(Claim("track", "track", NOW)),
            store.find(pools.free_sandboxes(1)[0].sandbox_id),
            store.page(SandboxFilter(), limit=5, cursor=None),
            pools.rows_of(store.overdue(ended_by=NOW)),
            pools.rows_of(store.deletable(now=NOW)),
            store.counts(),
            store.check(),
            store.tombstoned(["one"]),
        ]
        for outcome in await asyncio.gather(*reads, return_exceptions=True):
            assert isinstance(outcome, UnavailableError)

    async def test_a_fault_that_passes_is_not_noticed(
        self,
        store: DynamoPoolStore,
        direct: DynamoPoolStore,
        proxy: FaultProxy,
    ) -> None:
        await fill(direct, 20)
        for kind in ("throttle", "cancel", "error", "reset", "drop"):
            proxy.set(**{kind: 1, "times": 3})
            assert (await leased(store, kind)).is_new
            proxy.calm()
        assert len(await in_state(direct, Status.ALLOCATED)) == 5

    async def test_a_cleanup_says_that_the_engine_is_away(
        self, store: DynamoPoolStore, direct: DynamoPoolStore, proxy: FaultProxy, clock: ManualClock
    ) -> None:
        await fill(direct, 2)
        rows = await pools.everything(direct)
        await direct.apply([pools.ended(each) for each in rows])
        cleanup = Cleanup(
            store,
            FakeProvider(),
            clock=clock,
            metrics=BrokerMetrics(CollectorRegistry()),
            policy=DeletionPolicy(3, 300, 3600),
            parallel=2,
            randomness=random.Random(1),
        )
        proxy.set(throttle=1, only=["TransactWriteItems"])
        with pytest.raises(UnavailableError):
            await cleanup.run()

    async def test_what_is_unavailable_changed_nothing_or_all(
        self,
        store: DynamoPoolStore,
        direct: DynamoPoolStore,
        proxy: FaultProxy,
        trouble: dict[str, Any],
    ) -> None:
        await fill(direct, 3)
        before = await allocated(store, "track")
        end = pools.ended(before, NOW + 1)
        proxy.set(**trouble)
        with pytest.raises(UnavailableError):
            await store.apply([end])
        assert await row(direct, before.sandbox_id) in (before, end.result)
        await check_invariants(direct)

    async def test_what_failed_does_not_go_on_behind_the_callers_back(
        self, store: DynamoPoolStore, direct: DynamoPoolStore, proxy: FaultProxy
    ) -> None:
        await fill(direct, 100)
        rows = await pools.everything(direct)
        proxy.set(throttle=1)
        with pytest.raises(UnavailableError):
            await store.apply([pools.ended(each) for each in rows])
        proxy.calm()
        await asyncio.sleep(IMPATIENT.deadline_sec)
        on_their_way = 32
        assert len(await in_state(direct, Status.AVAILABLE)) >= 100 - on_their_way


class TestBreaker:
    POLICY = replace(
        IMPATIENT, deadline_sec=1.5, try_sec=1, circuit_threshold=3, circuit_timeout_sec=3
    )

    @pytest.fixture
    async def store(self, proxy: FaultProxy, pool: PoolTable) -> AsyncIterator[DynamoPoolStore]:
        async with store_at(proxy.url, pool, policy=self.POLICY) as store:
            yield store

    async def test_opens_under_lasting_trouble_and_closes_by_itself(
        self, store: DynamoPoolStore, direct: DynamoPoolStore, proxy: FaultProxy
    ) -> None:
        await fill(direct, 20)
        await leased(store, "first")
        proxy.set(throttle=1)
        for _ in range(self.POLICY.circuit_threshold):
            with pytest.raises(UnavailableError):
                await store.claim(Claim("track", "track", NOW))
        proxy.reset_counts()
        with pytest.raises(UnavailableError, match="is not called"):
            await store.claim(Claim("track", "track", NOW))
        assert not proxy.calls
        proxy.calm()
        await self._until_leased(store)

    async def _until_leased(self, store: DynamoPoolStore) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                assert await store.claim(Claim("track", "track", NOW)) is not None
            except UnavailableError:
                assert time.monotonic() < deadline, "the breaker stayed open"
                await asyncio.sleep(0.05)
            else:
                return

    async def test_refusals_are_no_trouble(
        self, direct: DynamoPoolStore, proxy: FaultProxy, pool: PoolTable
    ) -> None:
        await fill(direct, 2)
        [free, _] = await pools.everything(direct)
        change = pools.restored(pools.quarantined(free).result)
        policy = replace(PATIENT, circuit_threshold=3)
        async with store_at(proxy.url, pool, policy=policy) as store:
            assert await store.apply([change] * 20) == [False] * 20
            assert (await leased(store, "track")).is_new

    async def test_opens_also_when_the_engine_hangs(
        self, direct: DynamoPoolStore, proxy: FaultProxy, pool: PoolTable
    ) -> None:
        """With the times that a server has: a claim's own deadline must not hide the failures."""
        await fill(direct, 20)
        async with store_at(proxy.url, pool, policy=DynamoPolicy()) as store:
            await leased(store, "first")
            proxy.set(delay=1, delay_sec=30)
            claims = [store.claim(Claim(f"t{n}", f"t{n}", NOW)) for n in range(8)]
            for outcome in await asyncio.gather(*claims, return_exceptions=True):
                assert isinstance(outcome, UnavailableError)
            proxy.reset_counts()
            with pytest.raises(UnavailableError, match="is not called"):
                await store.claim(Claim("track", "track", NOW))
            assert not proxy.calls
