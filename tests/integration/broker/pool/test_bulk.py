"""Operators delete many sandboxes at once, on every engine."""

import asyncio

import pytest

from sandyard.broker.pool.action_model import AUTO_DELETE_STALE, BULK_DELETE, Action
from sandyard.broker.pool.bulk import BulkChanges, BulkLimits, BulkReport
from sandyard.broker.pool.jobs import CleanupReport
from sandyard.broker.pool.model import Status
from sandyard.kit import ids
from tests.integration.broker.yard import DAY, HEALTHY, HOUR, OUTAGE, Yard
from tests.support.broker.pools import check_invariants
from tests.support.broker.services import new_assigner

ALL = BulkLimits()


@pytest.fixture
def bulk(yard: Yard) -> BulkChanges:
    return BulkChanges(
        yard.store, clock=yard.clock, assigner=new_assigner(yard.store, clock=yard.clock)
    )


async def delete(
    bulk: BulkChanges,
    status: Status,
    limits: BulkLimits = ALL,
    *,
    name: str = "",
    track: str | None = None,
    hours: float = 0,
) -> BulkReport:
    return await bulk.delete(
        status=status, name_prefix=name, track=track, older_than_hours=hours, limits=limits
    )


async def make_stale(yard: Yard, count: int) -> list[str]:
    """So many that the provider does not list any more."""
    external_ids = await yard.fill(count)
    yard.hide(external_ids)
    assert (await yard.sync().run(force=True)).made_stale == count
    return [ids.sandbox_id(each) for each in external_ids]


async def test_leased_ones_are_released_by_name_and_track(yard: Yard, bulk: BulkChanges) -> None:
    await yard.fill(12)
    leased = await yard.lease(12)
    named = [row.sandbox_id for row in (await yard.rows()).values() if "-000" in row.name]
    report = await delete(bulk, Status.ALLOCATED, name="sandbox-000")
    assert (report.matched, report.changed, report.skipped) == (9, 9, 0)
    assert sorted(report.sandbox_ids) == sorted(named)
    [left, *_] = set(leased) - set(named)
    owner = (await yard.row(left)).allocated_to_track
    assert (await delete(bulk, Status.ALLOCATED, track=owner)).sandbox_ids == [left]
    page = await yard.broker.get_history(left, limit=1, cursor=None)
    event = page.items[0].event
    assert (event.kind, event.actor, event.reason) == ("lease.ended", "operator", BULK_DELETE)
    assert await yard.statuses() == {Status.ALLOCATED: 2, Status.PENDING_DELETION: 10}
    await check_invariants(yard.store)


async def test_a_dry_run_says_which_ones_and_changes_nothing(yard: Yard, bulk: BulkChanges) -> None:
    stale = await make_stale(yard, 4)
    before = await yard.rows()
    told = await delete(bulk, Status.STALE, BulkLimits(dry_run=True))
    assert (told.matched, told.changed, told.next_cursor) == (4, 0, None)
    assert sorted(told.sandbox_ids) == sorted(stale)
    assert await yard.rows() == before
    done = await delete(bulk, Status.STALE)
    assert (done.changed, sorted(done.sandbox_ids)) == (4, sorted(stale))
    assert await yard.cleanup().run() == CleanupReport(deleted=4)


async def test_failed_deletions_are_tried_again(yard: Yard, bulk: BulkChanges) -> None:
    await yard.fill(3)
    await yard.give_up(3)
    yard.simulator.faults = OUTAGE
    assert (await yard.cleanup(max_attempts=1).run()).failed == 3
    yard.simulator.faults = HEALTHY
    assert (await delete(bulk, Status.DELETION_FAILED)).changed == 3
    assert await yard.cleanup().run() == CleanupReport(deleted=3)


async def test_those_that_changed_lately_stay(yard: Yard, bulk: BulkChanges) -> None:
    old = await make_stale(yard, 2)
    yard.clock.advance(HOUR)
    await make_stale(yard, 3)
    report = await delete(bulk, Status.STALE, hours=1)
    assert sorted(report.sandbox_ids) == sorted(old)
    assert await yard.statuses() == {Status.STALE: 3, Status.PENDING_DELETION: 2}


async def test_a_call_is_bounded_and_goes_on_by_its_cursor(yard: Yard, bulk: BulkChanges) -> None:
    stale = await make_stale(yard, 7)
    found: list[str] = []
    cursor = None
    for expected in (3, 3, 1):
        report = await delete(bulk, Status.STALE, BulkLimits(3, cursor))
        assert report.changed == expected
        found += report.sandbox_ids
        cursor = report.next_cursor
    assert sorted(found) == sorted(stale)
    if cursor is not None:  # on DynamoDB a page may be empty before the last one
        assert (await delete(bulk, Status.STALE, BulkLimits(3, cursor))).matched == 0


async def test_two_at_once_delete_each_of_them_once(yard: Yard, bulk: BulkChanges) -> None:
    stale = await make_stale(yard, 30)
    reports = await asyncio.gather(*(delete(bulk, Status.STALE) for _ in range(2)))
    deleted = [each for report in reports for each in report.sandbox_ids]
    assert sorted(deleted) == sorted(stale)
    assert all(each.matched == each.changed + each.skipped for each in reports)
    await check_invariants(yard.store)


async def test_stale_ones_go_after_their_time_and_quarantined_ones_never(
    yard: Yard, bulk: BulkChanges
) -> None:
    [external_id, *_] = await yard.fill(1)
    quarantined = ids.sandbox_id(external_id)
    await yard.broker.act(Action.QUARANTINE, sandbox_id=quarantined)
    stale = await make_stale(yard, 2)
    yard.clock.advance(DAY - 1)
    assert (await bulk.delete_stale(grace_period_hours=24, limits=ALL)).matched == 0
    yard.clock.advance(1)
    report = await bulk.delete_stale(grace_period_hours=24, limits=ALL)
    assert sorted(report.sandbox_ids) == sorted(stale)
    page = await yard.broker.get_history(stale[0], limit=1, cursor=None)
    event = page.items[0].event
    assert (event.kind, event.reason) == ("deletion.requested", AUTO_DELETE_STALE)
    assert (await yard.row(quarantined)).status is Status.STALE
