"""Claims and expiry while the provider is away."""

import asyncio
import logging

import pytest

from sandyard.broker.pool.jobs import CleanupReport, ExpiryReport
from sandyard.broker.pool.model import Status
from sandyard.broker.pool.sync import SyncReport
from sandyard.broker.provider.errors import ProviderUnavailableError
from sandyard.kit import ids
from sandyard.tools.provider.simulator import Faults
from tests.integration.broker.yard import (
    DAY,
    DEADLINE_SEC,
    GRACE_SEC,
    HEALTHY,
    HOUR,
    LAB_HOURS,
    OUTAGE,
    GatedProvider,
    Yard,
)
from tests.integration.conftest import Connect, Serve, count, eventually


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
        assert {row.status for row in before.values()} == set(Status) - {
            Status.ALLOCATED,
            Status.RESERVED,
            Status.HELD,
        }
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
