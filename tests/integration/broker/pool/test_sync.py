"""Sync on the real engines while the provider fails, lies and changes its mind."""

import logging
import random

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandyard.broker.pool.action_model import Action
from sandyard.broker.pool.jobs import CleanupReport
from sandyard.broker.pool.model import Sandbox, StaleReason, Status
from sandyard.broker.pool.sync import SyncReport
from sandyard.broker.provider.errors import CircuitOpenError, ProviderUnavailableError
from sandyard.kit import ids
from sandyard.tools.provider.simulator import Faults
from tests.integration.broker.yard import HEALTHY, LAB_HOURS, OUTAGE, Yard
from tests.integration.conftest import Connect, Serve, count


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
            sequence=yard.now(),
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
        assert (await yard.store.counts()).by_status == {
            Status.AVAILABLE: 0,
            Status.RESERVED: 0,
            Status.ALLOCATED: 1,
            Status.PENDING_DELETION: 0,
            Status.STALE: 2,
            Status.HELD: 0,
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
        counts = (await yard.store.counts()).by_status
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
