"""A deleted sandbox that is still listed does not come back."""

import asyncio

import pytest

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.errors import SandboxNotFoundError
from sandyard.broker.pool.jobs import CleanupReport
from sandyard.broker.pool.model import Sandbox, Status, Tombstone
from sandyard.broker.pool.sync import SyncReport
from sandyard.broker.provider.errors import ProviderUnavailableError
from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.kit import ids
from sandyard.kit.sql.database import Database
from sandyard.tools.provider.simulator import Simulator
from tests.integration.broker.yard import DAY, OUTAGE, GatedProvider, Yard
from tests.integration.conftest import Connect, Serve, count, eventually
from tests.support.broker.pools import delete
from tests.support.broker.services import new_broker
from tests.support.clocks import ManualClock


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
            sequence=deleted_at + 3,
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
        broker = new_broker(store, clock=clock, metrics=metrics)
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
            assert await delete(plain, row, yard.now())

        yard.interrupt(delete_meanwhile)
        assert await yard.sync().run() == SyncReport(listed=1)
        assert isinstance(await yard.store.find(sandbox_id), Tombstone)
