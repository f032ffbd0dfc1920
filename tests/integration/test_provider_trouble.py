"""Sync, cleanup and expiry on the real engines while the provider is well, sick, slow or lying."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandyard.broker.errors import (
    CircuitOpenError,
    ProviderUnavailableError,
    SandboxNotFoundError,
)
from sandyard.broker.jobs import (
    Cleanup,
    CleanupReport,
    Expiry,
    ExpiryReport,
    Sync,
    SyncReport,
)
from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.model import (
    Action,
    DeletionPolicy,
    Sandbox,
    StaleReason,
    Status,
    Tombstone,
)
from sandyard.broker.ports import PoolStore, Provider
from sandyard.broker.provider.simulator import Faults, Simulator
from sandyard.broker.service import Broker
from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.kit import ids
from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql import Database
from tests.clocks import ManualClock
from tests.integration.conftest import Connect, Serve, count, eventually

HOUR = 3600
DAY = 24 * HOUR
LAB_HOURS = 4.0
GRACE_SEC = 30 * 60
BACKOFF_BASE_SEC = 300
BACKOFF_MAX_SEC = 3600
DEADLINE_SEC = 20

HEALTHY = Faults()
OUTAGE = Faults(outage="error")


@dataclass
class Yard:
    """A pool with its callers and its jobs, and the provider that the jobs talk to."""

    simulator: Simulator
    url: str
    connect: Connect
    store: PoolStore
    broker: Broker
    clock: ManualClock
    metrics: BrokerMetrics

    def now(self) -> int:
        return int(self.clock.now())

    def sync(
        self, *, lab_hours: float = LAB_HOURS, provider: Provider | None = None, **policy: Any
    ) -> Sync:
        return Sync(
            self.store,
            provider or self.connect(self.url, **policy),
            clock=self.clock,
            metrics=self.metrics,
            lab_duration_hours=lab_hours,
        )

    def cleanup(
        self,
        *,
        max_attempts: int = 3,
        parallel: int = 10,
        provider: Provider | None = None,
        **policy: Any,
    ) -> Cleanup:
        return Cleanup(
            self.store,
            provider or self.connect(self.url, **policy),
            clock=self.clock,
            metrics=self.metrics,
            policy=DeletionPolicy(max_attempts, BACKOFF_BASE_SEC, BACKOFF_MAX_SEC),
            parallel=parallel,
            randomness=random.Random(7),
        )

    def expiry(self) -> Expiry:
        return Expiry(self.store, clock=self.clock, metrics=self.metrics, grace_sec=GRACE_SEC)

    async def fill(self, number: int) -> list[str]:
        """So many new sandboxes at the provider and in the pool; gives their external ids."""
        known = set(self.simulator.sandboxes)
        self.simulator.create(number)
        assert (await self.sync().run()).added == number
        return [identity for identity in self.simulator.sandboxes if identity not in known]

    async def lease(self, number: int = 1) -> list[str]:
        """Lease so many sandboxes to tracks of their own; gives the sandbox ids."""
        tracks = [f"track-{index}" for index in range(number)]
        claims = await asyncio.gather(*(self.broker.allocate(track_id=track) for track in tracks))
        return [claimed.lease.sandbox_id for claimed in claims]

    async def give_up(self, number: int = 1) -> list[str]:
        """Lease and mark so many sandboxes; gives the sandbox ids that wait for deletion."""
        leased = await self.lease(number)
        for index, sandbox_id in enumerate(leased):
            await self.broker.mark_for_deletion(track_id=f"track-{index}", sandbox_id=sandbox_id)
        return leased

    def hide(self, external_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        """Let the provider lose these; gives what `show` takes to bring them back."""
        return {identity: self.simulator.sandboxes.pop(identity) for identity in external_ids}

    def show(self, hidden: dict[str, dict[str, str]]) -> None:
        self.simulator.sandboxes.update(hidden)

    async def row(self, sandbox_id: str) -> Sandbox:
        row = await self.store.find(sandbox_id)
        assert isinstance(row, Sandbox)
        return row

    def interrupt(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        """Let this happen when the next sync has looked at the pool and before it writes."""
        self.store = cast("PoolStore", InterruptedStore(self.store, meanwhile))

    async def rows(self) -> dict[str, Sandbox]:
        return {row.sandbox_id: row async for page in self.store.everything() for row in page}

    async def statuses(self) -> dict[Status, int]:
        """How many rows are in each state that has any."""
        return {status: number for status, number in (await self.store.counts()).items() if number}


@pytest.fixture
def yard(
    simulator: Simulator,
    simulator_url: str,
    connect: Connect,
    store: PoolStore,
    broker: Broker,
    clock: ManualClock,
    metrics: BrokerMetrics,
) -> Yard:
    return Yard(simulator, simulator_url, connect, store, broker, clock, metrics)


@dataclass
class GatedProvider:
    """A provider in the generic dialect whose answers wait behind gates.

    A list is drawn up when it is asked for, so one that waits grows old.
    """

    simulator: Simulator
    list_gate: asyncio.Event = field(default_factory=asyncio.Event)
    delete_gate: asyncio.Event = field(default_factory=asyncio.Event)
    lists_waiting: int = 0
    deletes_at_once: int = 0
    most_deletes_at_once: int = 0

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/sandbox", self._list),
                Route("/api/sandbox/{identity}", self._delete, methods=["DELETE"]),
            ]
        )

    async def _list(self, _request: Request) -> Response:
        entries = self.simulator.listed()
        self.lists_waiting += 1
        await self.list_gate.wait()
        return JSONResponse({"sandboxes": entries, "next_cursor": None})

    async def _delete(self, request: Request) -> Response:
        self.deletes_at_once += 1
        self.most_deletes_at_once = max(self.most_deletes_at_once, self.deletes_at_once)
        await self.delete_gate.wait()
        await asyncio.sleep(0.01)  # long enough that one too many would be seen beside it
        self.simulator.delete(request.path_params["identity"])
        self.deletes_at_once -= 1
        return Response(status_code=204)


class InterruptedStore:
    """A real store, with something happening between sync's look at it and its writes."""

    def __init__(self, store: PoolStore, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._store = store
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def everything(self) -> AsyncIterator[Sequence[Sandbox]]:
        async for page in self._store.everything():
            yield page
        await self._meanwhile()


class AwayStore:
    """A real store, until a deletion is to be recorded: then the engine is away."""

    def __init__(self, store: PoolStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def bury(self, sandbox: Sandbox, tombstone: Tombstone) -> bool:  # noqa: ARG002
        raise UnavailableError


class TestSync:
    async def test_new_ones_become_available_once(self, yard: Yard) -> None:
        yard.simulator.create(450)
        assert await yard.sync().run() == SyncReport(listed=450, added=450)
        assert await yard.sync().run() == SyncReport(listed=450, unchanged=450)
        assert await yard.statuses() == {Status.AVAILABLE: 450}
        [external_id, *_] = yard.simulator.sandboxes
        assert await yard.row(ids.sandbox_id(external_id)) == Sandbox(
            sandbox_id=ids.sandbox_id(external_id),
            name="sandbox-0001",
            external_id=external_id,
            status=Status.AVAILABLE,
            lab_duration_hours=LAB_HOURS,
            created_at=yard.now(),
            updated_at=yard.now(),
            last_synced=yard.now(),
        )
        assert count(yard.metrics.sync, outcome="succeeded") == 2

    async def test_the_infoblox_dialect_fills_and_empties_the_pool_as_well(
        self, yard: Yard
    ) -> None:
        yard.simulator.create(3)
        provider = yard.connect(yard.url, dialect="infoblox")
        assert (await yard.sync(provider=provider).run()).added == 3
        [sandbox_id] = await yard.give_up()
        assert (await yard.row(sandbox_id)).external_id.startswith("identity/accounts/")
        assert await yard.cleanup(provider=provider).run() == CleanupReport(deleted=1)
        assert len(yard.simulator.sandboxes) == 2
        assert await yard.sync(provider=provider).run() == SyncReport(listed=2, unchanged=2)

    async def test_missing_ones_go_stale_and_come_back(self, yard: Yard) -> None:
        external_ids = await yard.fill(10)
        hidden = yard.hide(external_ids[:3])
        yard.clock.advance(60)
        assert await yard.sync().run() == SyncReport(listed=7, unchanged=7, made_stale=3)
        for external_id in hidden:
            row = await yard.row(ids.sandbox_id(external_id))
            assert (row.status, row.stale_reason) == (Status.STALE, StaleReason.MISSING)
        yard.clock.advance(60)
        assert await yard.sync().run() == SyncReport(listed=7, unchanged=7)
        yard.show(hidden)
        yard.clock.advance(60)
        assert await yard.sync().run() == SyncReport(listed=10, unchanged=7, restored=3)
        for external_id in external_ids:
            row = await yard.row(ids.sandbox_id(external_id))
            assert (row.status, row.stale_reason) == (Status.AVAILABLE, None)
            assert row.last_synced == yard.now()

    async def test_a_stale_one_is_not_leased(self, yard: Yard) -> None:
        external_ids = await yard.fill(3)
        yard.hide(external_ids[1:])
        await yard.sync().run()
        assert await yard.lease() == [ids.sandbox_id(external_ids[0])]
        assert await yard.store.counts() == {
            Status.AVAILABLE: 0,
            Status.ALLOCATED: 1,
            Status.PENDING_DELETION: 0,
            Status.STALE: 2,
            Status.DELETION_FAILED: 0,
        }

    async def test_a_quarantined_one_waits_for_its_operator(self, yard: Yard) -> None:
        [external_id, *_] = await yard.fill(2)
        sandbox_id = ids.sandbox_id(external_id)
        await yard.broker.act(Action.QUARANTINE, sandbox_id=sandbox_id)
        assert await yard.sync().run() == SyncReport(listed=2, unchanged=2)
        hidden = yard.hide([external_id])
        assert await yard.sync().run() == SyncReport(listed=1, unchanged=1)
        yard.show(hidden)
        assert await yard.sync().run() == SyncReport(listed=2, unchanged=2)
        row = await yard.row(sandbox_id)
        assert (row.status, row.stale_reason) == (Status.STALE, StaleReason.QUARANTINED)
        await yard.broker.act(Action.RESTORE, sandbox_id=sandbox_id)
        assert await yard.statuses() == {Status.AVAILABLE: 2}

    @pytest.mark.parametrize("is_listed", [True, False])
    async def test_what_is_in_use_or_on_its_way_out_is_not_touched(
        self, yard: Yard, *, is_listed: bool
    ) -> None:
        await yard.fill(3)
        failed, *_ = await yard.give_up(1)
        yard.simulator.faults = OUTAGE
        assert (await yard.cleanup(max_attempts=1).run()).failed == 1
        yard.simulator.faults = HEALTHY
        [leased] = await yard.lease()
        claimed = await yard.broker.allocate(track_id="leaver")
        await yard.broker.mark_for_deletion(track_id="leaver", sandbox_id=claimed.lease.sandbox_id)
        before = await yard.rows()
        assert {row.status for row in before.values()} == {
            Status.ALLOCATED,
            Status.PENDING_DELETION,
            Status.DELETION_FAILED,
        }
        assert len({failed, leased, claimed.lease.sandbox_id}) == 3
        if not is_listed:
            yard.simulator.sandboxes.clear()
        yard.clock.advance(60)
        report = await yard.sync().run(force=True)
        assert report == SyncReport(listed=3 if is_listed else 0)
        assert await yard.rows() == before

    @pytest.mark.parametrize(
        "faults",
        [
            OUTAGE,
            Faults(error_rate=1),
            Faults(outage="hang"),
            Faults(latency=2),
            Faults(break_after_page=1),
        ],
        ids=["outage", "errors", "silence", "slow", "breaks off after page 1"],
    )
    async def test_a_list_that_cannot_be_read_to_its_end_changes_nothing(
        self, yard: Yard, faults: Faults
    ) -> None:
        external_ids = await yard.fill(250)
        yard.hide(external_ids[:10])
        yard.simulator.create(10)
        before = await yard.rows()
        yard.simulator.faults = faults
        for force in (False, True):
            with pytest.raises(ProviderUnavailableError):
                await yard.sync(read_timeout_sec=0.2, attempts=2).run(force=force)
        assert await yard.rows() == before
        assert count(yard.metrics.sync, outcome="failed") == 2
        yard.simulator.faults = HEALTHY
        report = await yard.sync().run()
        assert report == SyncReport(listed=250, added=10, unchanged=240, made_stale=10)
        assert count(yard.metrics.sync, outcome="succeeded") == 2

    async def test_a_list_that_breaks_off_fills_no_empty_pool(self, yard: Yard) -> None:
        yard.simulator.create(450)
        yard.simulator.faults = Faults(break_after_page=2)
        with pytest.raises(ProviderUnavailableError):
            await yard.sync().run()
        assert await yard.rows() == {}

    async def test_some_errors_are_overcome_by_retries(self, yard: Yard) -> None:
        yard.simulator.create(450)
        yard.simulator.randomness = random.Random(1)
        yard.simulator.faults = Faults(error_rate=0.4)
        report = await yard.sync(attempts=30).run()
        assert report == SyncReport(listed=450, added=450)
        assert yard.simulator.calls["list"] > 3

    async def test_an_open_circuit_is_a_failed_sync_that_asks_nobody(self, yard: Yard) -> None:
        await yard.fill(2)
        yard.simulator.faults = OUTAGE
        sync = yard.sync(circuit_threshold=1)
        with pytest.raises(ProviderUnavailableError):
            await sync.run()
        asked = yard.simulator.calls["list"]
        with pytest.raises(CircuitOpenError):
            await sync.run()
        assert yard.simulator.calls["list"] == asked
        assert count(yard.metrics.sync, outcome="failed") == 2
        assert await yard.statuses() == {Status.AVAILABLE: 2}

    @pytest.mark.parametrize(
        ("available", "missing", "is_held_back"),
        [
            (5, 5, False),
            (6, 6, True),
            (6, 5, False),
            (12, 6, False),
            (12, 7, True),
            (13, 6, False),
            (13, 7, True),
            (300, 150, False),
            (300, 151, True),
        ],
    )
    async def test_more_than_half_and_more_than_five_are_held_back(
        self,
        yard: Yard,
        caplog: pytest.LogCaptureFixture,
        available: int,
        missing: int,
        *,
        is_held_back: bool,
    ) -> None:
        external_ids = await yard.fill(available)
        yard.hide(external_ids[:missing])
        kept = available - missing
        report = await yard.sync().run()
        alarms = [record for record in caplog.records if record.levelno == logging.ERROR]
        if is_held_back:
            assert report == SyncReport(listed=kept, unchanged=kept, held_back=missing)
            assert await yard.statuses() == {Status.AVAILABLE: available}
            assert len(alarms) == 1
            forced = await yard.sync().run(force=True)
            assert forced == SyncReport(listed=kept, unchanged=kept, made_stale=missing)
        else:
            assert report == SyncReport(listed=kept, unchanged=kept, made_stale=missing)
            assert alarms == []
        assert count(yard.metrics.sync, outcome="held_back") == is_held_back
        counts = await yard.store.counts()
        assert (counts[Status.AVAILABLE], counts[Status.STALE]) == (kept, missing)

    async def test_only_available_rows_count_towards_the_half(self, yard: Yard) -> None:
        external_ids = await yard.fill(20)
        leased = set(await yard.lease(9))
        free = [identity for identity in external_ids if ids.sandbox_id(identity) not in leased]
        yard.hide(free[:6])
        assert (await yard.sync().run()).held_back == 6
        yard.hide([identity for identity in external_ids if ids.sandbox_id(identity) in leased])
        assert (await yard.sync().run()).held_back == 6

    async def test_an_empty_list_is_held_back_until_it_is_forced(self, yard: Yard) -> None:
        await yard.fill(10)
        yard.simulator.faults = Faults(empty_list=True)
        assert await yard.sync().run() == SyncReport(held_back=10)
        assert len(await yard.lease(4)) == 4
        assert await yard.sync().run(force=True) == SyncReport(made_stale=6)
        assert await yard.statuses() == {Status.ALLOCATED: 4, Status.STALE: 6}
        yard.simulator.faults = HEALTHY
        assert await yard.sync().run() == SyncReport(listed=10, restored=6)

    async def test_an_empty_list_empties_a_small_pool(self, yard: Yard) -> None:
        await yard.fill(5)
        yard.simulator.faults = Faults(empty_list=True)
        assert await yard.sync().run() == SyncReport(made_stale=5)

    async def test_a_sync_that_holds_back_still_adds_and_restores(self, yard: Yard) -> None:
        external_ids = await yard.fill(10)
        hidden = yard.hide(external_ids[:2])
        await yard.sync().run()
        yard.show(hidden)
        yard.hide(external_ids[2:])
        yard.simulator.create(3)
        report = await yard.sync().run()
        assert report == SyncReport(listed=5, added=3, restored=2, held_back=8)
        assert await yard.statuses() == {Status.AVAILABLE: 13}

    async def test_a_sandbox_that_is_listed_twice_is_one(
        self, yard: Yard, serve: Serve, connect: Connect
    ) -> None:
        entry = {"id": "same", "name": "one"}

        async def twice(_request: Request) -> Response:
            return JSONResponse({"sandboxes": [entry, entry], "next_cursor": None})

        provider = connect(await serve(Starlette(routes=[Route("/api/sandbox", twice)])))
        assert await yard.sync(provider=provider).run() == SyncReport(listed=1, added=1)
        assert await yard.sync(provider=provider).run() == SyncReport(listed=1, unchanged=1)

    async def test_what_is_leased_while_sync_decides_stays_leased(self, yard: Yard) -> None:
        external_ids = await yard.fill(4)
        yard.hide(external_ids)
        yard.interrupt(lambda: yard.lease(3))
        assert await yard.sync().run() == SyncReport(made_stale=1)
        assert await yard.statuses() == {Status.ALLOCATED: 3, Status.STALE: 1}

    async def test_what_is_quarantined_while_sync_decides_stays_quarantined(
        self, yard: Yard
    ) -> None:
        [external_id] = await yard.fill(1)
        sandbox_id = ids.sandbox_id(external_id)
        yard.hide([external_id])
        yard.interrupt(lambda: yard.broker.act(Action.QUARANTINE, sandbox_id=sandbox_id))
        assert await yard.sync().run() == SyncReport()
        assert (await yard.row(sandbox_id)).stale_reason is StaleReason.QUARANTINED

    async def test_what_an_operator_releases_while_sync_decides_is_not_brought_back(
        self, yard: Yard
    ) -> None:
        [external_id] = await yard.fill(1)
        sandbox_id = ids.sandbox_id(external_id)
        hidden = yard.hide([external_id])
        await yard.sync().run()
        yard.show(hidden)
        yard.interrupt(lambda: yard.broker.act(Action.RELEASE, sandbox_id=sandbox_id))
        assert await yard.sync().run() == SyncReport(listed=1)
        assert await yard.statuses() == {Status.PENDING_DELETION: 1}


class TestTombstones:
    async def test_a_deleted_one_that_is_still_listed_never_comes_back(self, yard: Yard) -> None:
        external_ids = await yard.fill(2)
        [sandbox_id] = await yard.give_up()
        [entry] = [
            yard.simulator.sandboxes[identity]
            for identity in external_ids
            if ids.sandbox_id(identity) == sandbox_id
        ]
        deleted_at = yard.now()
        assert await yard.cleanup().run() == CleanupReport(deleted=1)
        buried = await yard.store.find(sandbox_id)
        assert buried == Tombstone(
            sandbox_id=sandbox_id,
            external_id=entry["id"],
            allocated_to_track="track-0",
            deletion_requested_at=deleted_at,
            deleted_at=deleted_at,
            kept_until=deleted_at + 7 * DAY,
        )
        yard.show({entry["id"]: entry})
        for times in range(1, 5):
            yard.clock.advance(6 * DAY)
            report = await yard.sync().run(force=times % 2 == 0)
            assert report == SyncReport(listed=2, unchanged=1, tombstones_listed=1)
            found = await yard.store.find(sandbox_id)
            assert isinstance(found, Tombstone)
            assert found.deleted_at == deleted_at
            assert found.kept_until == yard.now() + 7 * DAY
            assert count(yard.metrics.tombstones_listed) == times
        assert await yard.statuses() == {Status.AVAILABLE: 1}

    async def test_it_holds_also_when_no_sync_ran_for_longer_than_it_is_kept(
        self, yard: Yard
    ) -> None:
        [external_id] = await yard.fill(1)
        entry = yard.simulator.sandboxes[external_id]
        await yard.give_up()
        await yard.cleanup().run()
        yard.show({external_id: entry})
        yard.clock.advance(30 * DAY)
        assert await yard.sync().run() == SyncReport(listed=1, tombstones_listed=1)
        assert await yard.sync().run() == SyncReport(listed=1, tombstones_listed=1)
        assert await yard.statuses() == {}

    async def test_it_is_forgotten_seven_days_after_it_was_last_listed(self, yard: Yard) -> None:
        [external_id] = await yard.fill(1)
        entry = yard.simulator.sandboxes[external_id]
        [sandbox_id] = await yard.give_up()
        await yard.cleanup().run()
        yard.show({external_id: entry})
        yard.clock.advance(3 * DAY)
        await yard.sync().run()
        yard.hide([external_id])
        yard.clock.advance(7 * DAY - 1)
        assert await yard.sync().run() == SyncReport()
        marked = await yard.broker.mark_for_deletion(track_id="track-0", sandbox_id=sandbox_id)
        assert marked.status == "deleted"
        yard.clock.advance(1)
        assert await yard.sync().run() == SyncReport()
        with pytest.raises(SandboxNotFoundError):
            await yard.broker.mark_for_deletion(track_id="track-0", sandbox_id=sandbox_id)
        assert count(yard.metrics.tombstones_listed) == 1

    async def test_the_sync_after_its_time_takes_it_out_of_a_sql_engine(
        self,
        simulator: Simulator,
        simulator_url: str,
        connect: Connect,
        database: Database,
        clock: ManualClock,
        metrics: BrokerMetrics,
    ) -> None:
        store = SqlPoolStore(database)
        broker = Broker(store, clock=clock, metrics=metrics)
        yard = Yard(simulator, simulator_url, connect, store, broker, clock, metrics)
        await yard.fill(1)
        [sandbox_id] = await yard.give_up()
        await yard.cleanup().run()
        for seconds, is_kept in ((7 * DAY - 1, True), (1, False)):
            yard.clock.advance(seconds)
            await yard.sync().run()
            assert (await yard.store.find(sandbox_id) is not None) is is_kept

    async def test_a_sync_that_fails_forgets_none(self, yard: Yard) -> None:
        await yard.fill(1)
        [sandbox_id] = await yard.give_up()
        await yard.cleanup().run()
        yard.clock.advance(8 * DAY)
        yard.simulator.faults = OUTAGE
        with pytest.raises(ProviderUnavailableError):
            await yard.sync().run()
        assert isinstance(await yard.store.find(sandbox_id), Tombstone)

    async def test_a_list_from_before_the_deletion_brings_nothing_back(
        self, yard: Yard, serve: Serve, connect: Connect
    ) -> None:
        await yard.fill(3)
        late = GatedProvider(yard.simulator)
        provider = connect(await serve(late.app()))
        sync = asyncio.create_task(yard.sync(provider=provider).run())
        await eventually(lambda: late.lists_waiting == 1)
        [sandbox_id] = await yard.give_up()
        assert await yard.cleanup().run() == CleanupReport(deleted=1)
        late.list_gate.set()
        assert await sync == SyncReport(listed=3, unchanged=2, tombstones_listed=1)
        assert isinstance(await yard.store.find(sandbox_id), Tombstone)
        assert await yard.statuses() == {Status.AVAILABLE: 2}

    async def test_a_deletion_between_sync_s_look_and_its_writes_holds_too(
        self, yard: Yard
    ) -> None:
        await yard.fill(1)
        [sandbox_id] = await yard.give_up()
        plain = yard.store

        async def delete_meanwhile() -> None:
            row = await plain.find(sandbox_id)
            assert isinstance(row, Sandbox)
            assert await plain.bury(row, Tombstone.of(row, yard.now()))

        yard.interrupt(delete_meanwhile)
        assert await yard.sync().run() == SyncReport(listed=1)
        assert isinstance(await yard.store.find(sandbox_id), Tombstone)


class TestCleanup:
    async def test_what_was_given_up_is_deleted_at_the_provider_and_buried(
        self, yard: Yard
    ) -> None:
        await yard.fill(5)
        given_up = await yard.give_up(3)
        assert await yard.cleanup().run() == CleanupReport(deleted=3)
        assert await yard.statuses() == {Status.AVAILABLE: 2}
        assert len(yard.simulator.sandboxes) == 2
        for sandbox_id in given_up:
            assert isinstance(await yard.store.find(sandbox_id), Tombstone)
        assert count(yard.metrics.cleanup, outcome="deleted") == 3
        assert await yard.cleanup().run() == CleanupReport()
        assert yard.simulator.calls["delete"] == 3

    async def test_one_that_the_provider_does_not_know_any_more_is_gone(self, yard: Yard) -> None:
        external_ids = await yard.fill(2)
        [sandbox_id] = await yard.give_up()
        yard.hide([identity for identity in external_ids if ids.sandbox_id(identity) == sandbox_id])
        assert await yard.cleanup().run() == CleanupReport(deleted=1)
        assert isinstance(await yard.store.find(sandbox_id), Tombstone)
        assert yard.simulator.calls["delete"] == 1

    async def test_more_than_a_page_goes_in_one_run(self, yard: Yard) -> None:
        await yard.fill(250)
        await yard.give_up(250)
        assert await yard.cleanup(parallel=16).run() == CleanupReport(deleted=250)
        assert yard.simulator.sandboxes == {}
        assert yard.simulator.calls["delete"] == 250

    async def test_more_than_a_page_of_failures_is_tried_once_each_in_one_run(
        self, yard: Yard
    ) -> None:
        await yard.fill(220)
        await yard.give_up(220)
        yard.simulator.faults = OUTAGE
        assert await yard.cleanup(parallel=16).run() == CleanupReport(retried=220)
        assert yard.simulator.calls["delete"] == 220

    @pytest.mark.parametrize("parallel", [1, 3])
    async def test_never_more_deletions_at_once_than_allowed(
        self, yard: Yard, serve: Serve, connect: Connect, parallel: int
    ) -> None:
        await yard.fill(12)
        await yard.give_up(12)
        slow = GatedProvider(yard.simulator)
        provider = connect(await serve(slow.app()))
        cleanup = asyncio.create_task(yard.cleanup(parallel=parallel, provider=provider).run())
        await eventually(lambda: slow.deletes_at_once == parallel)
        slow.delete_gate.set()
        assert await cleanup == CleanupReport(deleted=12)
        assert slow.most_deletes_at_once == parallel

    async def test_some_errors_cost_a_retry_each_and_nothing_else(self, yard: Yard) -> None:
        await yard.fill(40)
        given_up = await yard.give_up(40)
        yard.simulator.randomness = random.Random(3)
        yard.simulator.faults = Faults(error_rate=0.3)
        draws = random.Random(3)
        failures = sum(draws.random() < 0.3 for _ in range(40))
        assert 0 < failures < 40
        report = await yard.cleanup().run()
        assert report == CleanupReport(deleted=40 - failures, retried=failures)
        assert count(yard.metrics.cleanup, outcome="deleted") == 40 - failures
        assert count(yard.metrics.cleanup, outcome="retried") == failures
        assert await yard.statuses() == {Status.PENDING_DELETION: failures}
        yard.simulator.faults = HEALTHY
        yard.clock.advance(BACKOFF_BASE_SEC)
        assert await yard.cleanup().run() == CleanupReport(deleted=failures)
        assert yard.simulator.sandboxes == {}
        for sandbox_id in given_up:
            assert isinstance(await yard.store.find(sandbox_id), Tombstone)

    async def test_a_deletion_that_timed_out_but_happened_is_found_done_at_the_next_try(
        self, yard: Yard
    ) -> None:
        await yard.fill(1)
        [sandbox_id] = await yard.give_up()
        yard.simulator.faults = Faults(delete_latency=0.4)
        assert await yard.cleanup(read_timeout_sec=0.1).run() == CleanupReport(retried=1)
        await eventually(lambda: yard.simulator.sandboxes == {})
        yard.clock.advance(BACKOFF_BASE_SEC)
        assert await yard.cleanup().run() == CleanupReport(deleted=1)
        assert isinstance(await yard.store.find(sandbox_id), Tombstone)

    async def test_slow_deletions_are_waited_for(self, yard: Yard) -> None:
        await yard.fill(6)
        await yard.give_up(6)
        yard.simulator.faults = Faults(delete_latency=0.1)
        assert await yard.cleanup(parallel=3).run() == CleanupReport(deleted=6)

    async def test_each_failure_waits_twice_as_long_less_a_random_share(self, yard: Yard) -> None:
        await yard.fill(20)
        given_up = await yard.give_up(20)
        yard.simulator.faults = OUTAGE
        cleanup = yard.cleanup(max_attempts=8)
        for attempt, longest in enumerate([300, 600, 1200, 2400, 3600, 3600], start=1):
            assert await cleanup.run() == CleanupReport(retried=20)
            rows = [await yard.row(sandbox_id) for sandbox_id in given_up]
            assert {row.deletion_retry_count for row in rows} == {attempt}
            assert {row.status for row in rows} == {Status.PENDING_DELETION}
            waits = [(row.next_attempt_at or 0) - yard.now() for row in rows]
            assert all(longest / 2 <= wait <= longest for wait in waits)
            assert len(set(waits)) > 10
            yard.clock.advance(longest)

    async def test_a_failed_deletion_is_not_tried_again_before_it_is_due(self, yard: Yard) -> None:
        await yard.fill(1)
        [sandbox_id] = await yard.give_up()
        yard.simulator.faults = OUTAGE
        await yard.cleanup().run()
        yard.simulator.faults = HEALTHY
        due_at = (await yard.row(sandbox_id)).next_attempt_at
        assert due_at is not None
        for moment in (yard.now(), yard.now() + 1, due_at - 1):
            yard.clock.advance(moment - yard.now())
            assert await yard.cleanup().run() == CleanupReport()
        assert yard.simulator.calls["delete"] == 1
        yard.clock.advance(1)
        assert await yard.cleanup().run() == CleanupReport(deleted=1)

    @pytest.mark.parametrize("max_attempts", [1, 3])
    async def test_after_the_last_attempt_an_operator_is_called(
        self, yard: Yard, caplog: pytest.LogCaptureFixture, max_attempts: int
    ) -> None:
        await yard.fill(1)
        [sandbox_id] = await yard.give_up()
        yard.simulator.faults = OUTAGE
        cleanup = yard.cleanup(max_attempts=max_attempts)
        for _ in range(max_attempts - 1):
            assert await cleanup.run() == CleanupReport(retried=1)
            yard.clock.advance(BACKOFF_MAX_SEC)
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert await cleanup.run() == CleanupReport(failed=1)
        row = await yard.row(sandbox_id)
        assert (row.status, row.deletion_retry_count) == (Status.DELETION_FAILED, max_attempts)
        [alarm] = [record for record in caplog.records if record.levelno == logging.ERROR]
        about = vars(alarm)
        assert (about["sandbox_id"], about["track_id"]) == (sandbox_id, "track-0")
        assert about["attempts"] == max_attempts
        assert count(yard.metrics.cleanup, outcome="retried") == max_attempts - 1
        assert count(yard.metrics.cleanup, outcome="failed") == 1
        yard.simulator.faults = HEALTHY
        yard.clock.advance(30 * DAY)
        assert await cleanup.run() == CleanupReport()
        assert yard.simulator.calls["delete"] == max_attempts

    async def test_an_operator_s_retry_starts_again_from_zero(self, yard: Yard) -> None:
        await yard.fill(1)
        [sandbox_id] = await yard.give_up()
        requested_at = yard.now()
        yard.simulator.faults = OUTAGE
        cleanup = yard.cleanup(max_attempts=2)
        await cleanup.run()
        yard.clock.advance(BACKOFF_MAX_SEC)
        assert await cleanup.run() == CleanupReport(failed=1)
        yard.clock.advance(DAY)
        row = await yard.broker.act(Action.RETRY_DELETION, sandbox_id=sandbox_id)
        assert (row.status, row.deletion_retry_count) == (Status.PENDING_DELETION, 0)
        assert await cleanup.run() == CleanupReport(retried=1)
        row = await yard.row(sandbox_id)
        assert (row.status, row.deletion_retry_count) == (Status.PENDING_DELETION, 1)
        wait = (row.next_attempt_at or 0) - yard.now()
        assert BACKOFF_BASE_SEC / 2 <= wait <= BACKOFF_BASE_SEC
        yard.simulator.faults = HEALTHY
        yard.clock.advance(BACKOFF_BASE_SEC)
        assert await cleanup.run() == CleanupReport(deleted=1)
        buried = await yard.store.find(sandbox_id)
        assert isinstance(buried, Tombstone)
        assert buried.deletion_requested_at == requested_at

    async def test_an_open_circuit_counts_no_attempt_and_asks_nobody(self, yard: Yard) -> None:
        await yard.fill(6)
        await yard.give_up(6)
        before = await yard.rows()
        yard.simulator.faults = OUTAGE
        provider = yard.connect(yard.url, circuit_threshold=2, circuit_timeout_sec=3600)
        cleanup = yard.cleanup(parallel=1, provider=provider)
        assert await cleanup.run() == CleanupReport(retried=2, postponed=4)
        after = await yard.rows()
        tried = [row for row in after.values() if row != before[row.sandbox_id]]
        assert len(tried) == 2
        assert all(row.deletion_retry_count == 1 for row in tried)
        yard.clock.advance(BACKOFF_MAX_SEC)
        report = await cleanup.run()
        assert (report.deleted, report.retried, report.failed) == (0, 0, 0)
        assert report.postponed > 0
        assert await yard.rows() == after
        assert yard.simulator.calls["delete"] == 2
        assert count(yard.metrics.cleanup, outcome="retried") == 2
        yard.simulator.faults = HEALTHY
        assert await yard.cleanup().run() == CleanupReport(deleted=6)

    async def test_an_open_circuit_never_makes_a_deletion_failed(self, yard: Yard) -> None:
        await yard.fill(1)
        [sandbox_id] = await yard.give_up()
        yard.simulator.faults = OUTAGE
        provider = yard.connect(yard.url, circuit_threshold=1, circuit_timeout_sec=3600)
        with pytest.raises(ProviderUnavailableError):
            await provider.list_sandboxes()
        cleanup = yard.cleanup(max_attempts=1, provider=provider)
        for _ in range(5):
            assert await cleanup.run() == CleanupReport(postponed=1)
            yard.clock.advance(BACKOFF_MAX_SEC)
        row = await yard.row(sandbox_id)
        assert (row.status, row.deletion_retry_count) == (Status.PENDING_DELETION, 0)
        assert yard.simulator.calls["delete"] == 0

    async def test_cleanup_resumes_by_itself_when_the_circuit_closes(self, yard: Yard) -> None:
        await yard.fill(4)
        await yard.give_up(4)
        yard.simulator.faults = OUTAGE
        provider = yard.connect(yard.url, circuit_threshold=1, circuit_timeout_sec=0.2)
        with pytest.raises(ProviderUnavailableError):
            await provider.list_sandboxes()
        yard.simulator.faults = HEALTHY
        cleanup = yard.cleanup(provider=provider)
        async with asyncio.timeout(DEADLINE_SEC):
            while await yard.statuses():
                await cleanup.run()
                await asyncio.sleep(0.02)
        assert yard.simulator.sandboxes == {}
        assert count(yard.metrics.cleanup, outcome="deleted") == 4
        assert count(yard.metrics.cleanup, outcome="retried") == 0

    async def test_those_that_never_go_end_in_deletion_failed_though_they_open_the_circuit(
        self, yard: Yard, serve: Serve, connect: Connect
    ) -> None:
        async def refuse(_request: Request) -> Response:
            return Response(status_code=500)

        await yard.fill(5)
        await yard.give_up(5)
        app = Starlette(routes=[Route("/api/sandbox/{identity}", refuse, methods=["DELETE"])])
        provider = connect(
            await serve(app), attempts=3, circuit_threshold=5, circuit_timeout_sec=0.05
        )
        cleanup = yard.cleanup(max_attempts=3, provider=provider)
        async with asyncio.timeout(DEADLINE_SEC):
            while await yard.statuses() != {Status.DELETION_FAILED: 5}:
                await cleanup.run()
                yard.clock.advance(BACKOFF_MAX_SEC)
                await asyncio.sleep(0.05)
        assert count(yard.metrics.cleanup, outcome="failed") == 5

    async def test_an_engine_that_is_away_is_reported_as_away(self, yard: Yard) -> None:
        await yard.fill(3)
        await yard.give_up(3)
        store = yard.store
        yard.store = cast("PoolStore", AwayStore(store))
        with pytest.raises(UnavailableError):
            await yard.cleanup().run()
        yard.store = store
        assert await yard.cleanup().run() == CleanupReport(deleted=3)
        assert yard.simulator.sandboxes == {}


class TestClaims:
    async def test_claims_are_served_while_sync_waits_for_the_provider(
        self, yard: Yard, serve: Serve, connect: Connect
    ) -> None:
        await yard.fill(20)
        silent = GatedProvider(yard.simulator)
        provider = connect(await serve(silent.app()), read_timeout_sec=60)
        sync = asyncio.create_task(yard.sync(provider=provider).run())
        await eventually(lambda: silent.lists_waiting == 1)
        async with asyncio.timeout(DEADLINE_SEC):
            assert len(set(await yard.lease(20))) == 20
        assert not sync.done()
        silent.list_gate.set()
        assert await sync == SyncReport(listed=20)

    async def test_claims_are_served_while_cleanup_waits_for_the_provider(
        self, yard: Yard, serve: Serve, connect: Connect
    ) -> None:
        await yard.fill(25)
        await yard.give_up(5)
        silent = GatedProvider(yard.simulator)
        provider = connect(await serve(silent.app()), read_timeout_sec=60)
        cleanup = asyncio.create_task(yard.cleanup(provider=provider).run())
        await eventually(lambda: silent.deletes_at_once == 5)
        async with asyncio.timeout(DEADLINE_SEC):
            assert len(set(await yard.lease(20))) == 20
            [marked, *_] = await yard.lease()
            await yard.broker.mark_for_deletion(track_id="track-0", sandbox_id=marked)
        assert not cleanup.done()
        silent.delete_gate.set()
        assert (await cleanup).deleted >= 5  # it may find the one that was marked meanwhile

    async def test_a_provider_s_outage_takes_nothing_from_the_pool(self, yard: Yard) -> None:
        await yard.fill(10)
        yard.simulator.faults = OUTAGE
        with pytest.raises(ProviderUnavailableError):
            await yard.sync().run(force=True)
        assert len(set(await yard.lease(10))) == 10


class TestExpiry:
    async def test_the_grace_period_ends_at_its_very_second(
        self, yard: Yard, caplog: pytest.LogCaptureFixture
    ) -> None:
        await yard.fill(2)
        claimed = await yard.broker.allocate(track_id="forgetful", track_name="Lab 7")
        sandbox_id = claimed.lease.sandbox_id
        yard.clock.advance(LAB_HOURS * HOUR + GRACE_SEC - 1)
        assert yard.now() == claimed.lease.expires_at + GRACE_SEC - 1
        assert await yard.expiry().run() == ExpiryReport(expired=0)
        assert (await yard.row(sandbox_id)).status is Status.ALLOCATED
        assert caplog.records == []
        yard.clock.advance(1)
        assert await yard.expiry().run() == ExpiryReport(expired=1)
        row = await yard.row(sandbox_id)
        assert row.status is Status.PENDING_DELETION
        assert (row.deletion_requested_at, row.next_attempt_at) == (yard.now(), yard.now())
        [warning] = caplog.records
        about = vars(warning)
        assert warning.levelno == logging.WARNING
        assert (about["track_id"], about["sandbox_id"]) == ("forgetful", sandbox_id)
        assert count(yard.metrics.expiry) == 1
        assert await yard.expiry().run() == ExpiryReport(expired=0)
        assert await yard.statuses() == {Status.AVAILABLE: 1, Status.PENDING_DELETION: 1}

    async def test_what_expired_is_deleted_by_the_next_cleanup(self, yard: Yard) -> None:
        await yard.fill(1)
        await yard.lease()
        yard.clock.advance(LAB_HOURS * HOUR + GRACE_SEC)
        await yard.expiry().run()
        assert await yard.cleanup().run() == CleanupReport(deleted=1)
        assert yard.simulator.sandboxes == {}

    async def test_each_row_s_own_duration_counts(self, yard: Yard) -> None:
        lengths = [0.5, 1.0, 4.0]
        for hours in lengths:
            yard.simulator.create(1)
            assert (await yard.sync(lab_hours=hours).run()).added == 1
        await yard.lease(3)
        started_at = yard.clock.now()
        for hours in lengths:
            ends_at = started_at + hours * HOUR + GRACE_SEC
            yard.clock.advance(ends_at - 1 - yard.clock.now())
            assert await yard.expiry().run() == ExpiryReport(expired=0)
            yard.clock.advance(1)
            assert await yard.expiry().run() == ExpiryReport(expired=1)
            rows = (await yard.rows()).values()
            assert {
                row.lab_duration_hours for row in rows if row.status is Status.PENDING_DELETION
            } == {length for length in lengths if length <= hours}

    async def test_more_than_a_page_goes_in_one_run(
        self, yard: Yard, caplog: pytest.LogCaptureFixture
    ) -> None:
        await yard.fill(260)
        await yard.lease(250)
        yard.clock.advance(LAB_HOURS * HOUR + GRACE_SEC)
        await yard.broker.allocate(track_id="newcomer")
        assert await yard.expiry().run() == ExpiryReport(expired=250)
        assert await yard.statuses() == {
            Status.AVAILABLE: 9,
            Status.ALLOCATED: 1,
            Status.PENDING_DELETION: 250,
        }
        assert count(yard.metrics.expiry) == 250
        named = {vars(record)["track_id"] for record in caplog.records}
        assert named == {f"track-{index}" for index in range(250)}

    async def test_only_allocated_ones_expire(self, yard: Yard) -> None:
        external_ids = await yard.fill(4)
        used = await yard.give_up(1)
        yard.simulator.faults = OUTAGE
        assert (await yard.cleanup(max_attempts=1).run()).failed == 1
        used += await yard.give_up(1)
        yard.simulator.faults = HEALTHY
        free = [identity for identity in external_ids if ids.sandbox_id(identity) not in used]
        yard.hide(free[:1])
        await yard.sync().run()
        before = await yard.rows()
        assert {row.status for row in before.values()} == set(Status) - {Status.ALLOCATED}
        yard.clock.advance(30 * DAY)
        assert await yard.expiry().run() == ExpiryReport(expired=0)
        assert await yard.rows() == before

    async def test_a_track_whose_lease_expired_gets_a_new_sandbox(self, yard: Yard) -> None:
        await yard.fill(2)
        [first] = await yard.lease()
        yard.clock.advance(LAB_HOURS * HOUR + GRACE_SEC)
        await yard.expiry().run()
        claimed = await yard.broker.allocate(track_id="track-0")
        assert claimed.is_new
        assert claimed.lease.sandbox_id != first

    async def test_expiry_needs_no_provider(self, yard: Yard) -> None:
        await yard.fill(3)
        await yard.lease(3)
        yard.simulator.faults = Faults(outage="hang")
        yard.clock.advance(LAB_HOURS * HOUR + GRACE_SEC)
        async with asyncio.timeout(DEADLINE_SEC):
            assert await yard.expiry().run() == ExpiryReport(expired=3)
