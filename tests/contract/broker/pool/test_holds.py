"""Hold and swap: a broken sandbox is kept to be looked at, and its track has another, on every
engine."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.action_model import Action, BulkFilter
from sandyard.broker.pool.bulk import BulkChanges, BulkLimits
from sandyard.broker.pool.errors import (
    AllocationExpiredError,
    AlreadyLeasedError,
    LeaseNotFoundError,
    LeaseTooLongError,
    NoSandboxesAvailableError,
    NotSandboxOwnerError,
    ReplacementLimitError,
    TransitionNotAllowedError,
)
from sandyard.broker.pool.jobs import Expiry, HoldReport, Holds
from sandyard.broker.pool.lease_model import Extension, Replacement
from sandyard.broker.pool.model import StaleReason, Status
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.pool.provider_model import decide_listing
from sandyard.broker.reservations.model import Booking
from sandyard.broker.verification import verify
from sandyard.kit.changes.events import EventQuery
from tests.support.broker.pools import (
    LAB_SEC,
    check_invariants,
    delete,
    everything,
    fill,
    operator,
    row,
    rows_of,
)
from tests.support.broker.services import new_assigner, new_broker, new_leases, new_reservations
from tests.support.clocks import ManualClock

HOLD_SEC = 24 * 3600


class Lab:
    """A pool, tracks that lease from it, and an operator."""

    def __init__(self, store: PoolStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.metrics = BrokerMetrics(CollectorRegistry())
        self.broker = new_broker(store, clock=clock, metrics=self.metrics, hold_sec=HOLD_SEC)
        self.leases = new_leases(
            store, clock=clock, metrics=self.metrics, lease_max_sec=2 * LAB_SEC, hold_sec=HOLD_SEC
        )

    @property
    def now(self) -> int:
        return int(self.clock.now())

    async def lease(self, track: str) -> str:
        return (await self.broker.allocate(track_id=track)).lease.sandbox_id

    async def replace(self, track: str, sandbox_id: str) -> str:
        asked = Replacement(track, "no network")
        return (await self.leases.replace(sandbox_id, asked)).sandbox_id

    async def first(self) -> str:
        return min(each.sandbox_id for each in await everything(self.store))

    async def kinds(self, sandbox_id: str) -> list[str]:
        query = EventQuery(subject=sandbox_id)
        page = await self.store.events.page(query, limit=100, cursor=None)
        return [each.event.kind for each in reversed(page.items)]

    async def check(self) -> None:
        await check_invariants(self.store)
        assert (await verify(self.store)).problems == []


@pytest.fixture
def lab(store: PoolStore, clock: ManualClock) -> Lab:
    return Lab(store, clock)


async def test_the_lease_goes_over_to_another_sandbox_and_the_old_one_is_held(lab: Lab) -> None:
    await fill(lab.store, 2)
    old_id = await lab.lease("track")
    old = await row(lab.store, old_id)
    lab.clock.advance(600)
    new_id = await lab.replace("track", old_id)
    new, held = await row(lab.store, new_id), await row(lab.store, old_id)
    assert new_id != old_id
    assert (new.allocated_at, new.expires_at) == (old.allocated_at, old.expires_at)
    assert held.status is Status.HELD
    assert (held.status_reason, held.replaced_by) == ("no network", new_id)
    assert held.held_until == lab.now + HOLD_SEC
    repeated = await lab.broker.allocate(track_id="track")
    assert (repeated.lease, repeated.is_new) == (new.lease, False)
    assert (await lab.kinds(old_id))[-1] == "lease.replaced"
    await lab.check()


async def test_a_mark_follows_to_the_sandbox_that_replaced_it(lab: Lab) -> None:
    await fill(lab.store, 3)
    old = await lab.lease("track")
    second = await lab.replace("track", old)
    last = await lab.replace("track", second)
    with pytest.raises(NotSandboxOwnerError):
        await lab.broker.mark_for_deletion(track_id="stranger", sandbox_id=old)
    marked = await lab.broker.mark_for_deletion(track_id="track", sandbox_id=old)
    assert (marked.sandbox_id, marked.status) == (last, "pending_deletion")
    assert marked.deletion_requested_at == lab.now
    lab.clock.advance(10)
    assert await lab.broker.mark_for_deletion(track_id="track", sandbox_id=old) == marked
    assert (await row(lab.store, old)).status is Status.HELD, "an operator still has it"
    assert (await row(lab.store, last)).status is Status.PENDING_DELETION
    await lab.check()


async def test_a_mark_follows_also_when_the_replaced_sandbox_is_deleted(lab: Lab) -> None:
    await fill(lab.store, 2)
    old = await lab.lease("track")
    new = await lab.replace("track", old)
    released = await lab.broker.act(Action.RELEASE, sandbox_id=old)
    assert await delete(lab.store, released, lab.now)
    marked = await lab.broker.mark_for_deletion(track_id="track", sandbox_id=old)
    assert (marked.sandbox_id, marked.status) == (new, "pending_deletion")
    assert await delete(lab.store, await row(lab.store, new), lab.now)
    again = await lab.broker.mark_for_deletion(track_id="track", sandbox_id=old)
    assert (again.sandbox_id, again.status) == (new, "deleted")
    await lab.check()


async def test_an_extension_follows_to_the_sandbox_that_replaced_it(lab: Lab) -> None:
    await fill(lab.store, 2)
    old = await lab.lease("track")
    new = await lab.replace("track", old)
    before = (await row(lab.store, new)).lease
    for _ in range(2):
        lease = await lab.leases.extend(old, Extension("track", 10, "once"))
        assert (lease.sandbox_id, lease.expires_at) == (new, before.expires_at + 600)
    await lab.check()


async def test_a_replacement_during_a_mark_leaves_no_lease(lab: Lab) -> None:
    await fill(lab.store, 20)
    for number in range(5):
        old = await lab.lease(f"track-{number}")
        await asyncio.gather(
            lab.replace(f"track-{number}", old),
            lab.broker.mark_for_deletion(track_id=f"track-{number}", sandbox_id=old),
            return_exceptions=True,
        )
        assert await lab.store.find_lease(f"track-{number}", f"track-{number}") is None
    await lab.check()


async def test_a_track_releases_by_its_key_whichever_sandbox_it_has(lab: Lab) -> None:
    await fill(lab.store, 3)
    old = await lab.lease("track")
    new = await lab.replace("track", old)
    await lab.broker.allocate(track_id="track", idempotency_key="second")
    released = await lab.broker.release(track_id="track", idempotency_key=None)
    assert (released.sandbox_id, released.status) == (new, "pending_deletion")
    lab.clock.advance(10)
    assert await lab.broker.release(track_id="track", idempotency_key=None) == released
    assert await lab.store.find_lease("track", "second") is not None
    assert await delete(lab.store, await row(lab.store, new), lab.now)
    for track in ("track", "stranger"):
        with pytest.raises(LeaseNotFoundError):
            await lab.broker.release(track_id=track, idempotency_key=None)
    await lab.check()


async def test_a_repeat_answers_what_the_track_has_now(lab: Lab) -> None:
    await fill(lab.store, 3)
    old = await lab.lease("track")
    first = await lab.replace("track", old)
    assert await lab.replace("track", old) == first
    second = await lab.replace("track", first)
    assert await lab.replace("track", old) == second
    await lab.broker.mark_for_deletion(track_id="track", sandbox_id=second)
    with pytest.raises(AllocationExpiredError):
        await lab.replace("track", old)
    await lab.check()


async def test_where_nothing_is_free_nothing_changes(lab: Lab) -> None:
    await fill(lab.store, 1)
    old = await lab.lease("track")
    before = await row(lab.store, old)
    with pytest.raises(NoSandboxesAvailableError):
        await lab.replace("track", old)
    assert await row(lab.store, old) == before
    await lab.check()


async def test_only_its_own_track_and_only_a_live_lease(lab: Lab) -> None:
    await fill(lab.store, 3)
    old = await lab.lease("track")
    with pytest.raises(NotSandboxOwnerError):
        await lab.replace("stranger", old)
    lab.clock.advance(LAB_SEC)
    with pytest.raises(AllocationExpiredError):
        await lab.replace("track", old)
    given_up = await lab.lease("other")
    await lab.broker.mark_for_deletion(track_id="other", sandbox_id=given_up)
    with pytest.raises(TransitionNotAllowedError):
        await lab.replace("other", given_up)


async def test_replacing_gives_no_longer_lease(lab: Lab) -> None:
    await fill(lab.store, 2)
    old = await lab.lease("track")
    await lab.leases.extend(old, Extension("track", LAB_SEC // 60))
    lab.clock.advance(600)
    new = await lab.replace("track", old)
    with pytest.raises(LeaseTooLongError):
        await lab.leases.extend(new, Extension("track", 1))


async def test_many_replace_at_once_and_each_has_one(lab: Lab) -> None:
    await fill(lab.store, 16)
    old = [await lab.lease(f"track-{n}") for n in range(8)]
    twice = [*enumerate(old), *enumerate(old)]
    got = await asyncio.gather(*(lab.replace(f"track-{n}", each) for n, each in twice))
    assert got[:8] == got[8:], "a repeat at the same time answers the same"
    assert len({*got, *old}) == 16
    counts = (await lab.store.counts()).by_status
    assert (counts[Status.ALLOCATED], counts[Status.HELD]) == (8, 8)
    await lab.check()


async def test_a_replacement_comes_from_the_tracks_reservation(lab: Lab) -> None:
    await fill(lab.store, 2)
    reservations = new_reservations(lab.store, clock=lab.clock)
    await reservations.reserve(Booking(2, lab.now, lab.now + 3600, "course-"))
    old = await lab.lease("course-1")
    new = await lab.replace("course-1", old)
    assert (await row(lab.store, new)).reservation_id is not None
    await lab.check()


async def test_a_reservation_gets_another_for_each_that_is_replaced_by_its_own(lab: Lab) -> None:
    await fill(lab.store, 6)
    reservations = new_reservations(lab.store, clock=lab.clock)
    made, _ = await reservations.reserve(Booking(6, lab.now, lab.now + 3600, "course-"))
    leased = [await lab.lease(f"course-{number}") for number in range(3)]
    await asyncio.gather(*(lab.replace(f"course-{n}", each) for n, each in enumerate(leased)))
    assert (await reservations.get(made.reservation_id)).missing == 3
    await fill(lab.store, 4, prefix="more")
    await reservations.maintain()
    assert (await reservations.get(made.reservation_id)).missing == 0
    for number in range(3, 6):
        assert (await row(lab.store, await lab.lease(f"course-{number}"))).reservation_id
    await lab.check()


async def test_a_reservation_gets_another_for_one_that_an_operator_holds(lab: Lab) -> None:
    await fill(lab.store, 3)
    reservations = new_reservations(lab.store, clock=lab.clock)
    made, _ = await reservations.reserve(Booking(2, lab.now, lab.now + 3600, "course-"))
    leased = await lab.lease("course-1")
    for _ in range(2):  # the second time it is held already
        await lab.broker.hold(sandbox_id=leased, reason="for Ana")
        assert (await reservations.get(made.reservation_id)).missing == 1
    await reservations.maintain()
    assert (await reservations.get(made.reservation_id)).missing == 0
    await lab.check()


async def test_a_replacement_from_the_rest_counts_for_the_reservation(lab: Lab) -> None:
    await fill(lab.store, 2)
    reservations = new_reservations(lab.store, clock=lab.clock)
    made, _ = await reservations.reserve(Booking(1, lab.now, lab.now + 3600, "course-"))
    new = await lab.replace("course-1", await lab.lease("course-1"))
    assert (await row(lab.store, new)).reservation_id == made.reservation_id
    assert (await reservations.get(made.reservation_id)).missing == 0
    await lab.check()


async def test_a_held_one_is_neither_leased_nor_expired_and_then_released(lab: Lab) -> None:
    await fill(lab.store, 2)
    leased = await lab.lease("track")
    [free] = [each for each in await everything(lab.store) if each.status is Status.AVAILABLE]
    for sandbox_id in (leased, free.sandbox_id):
        held = await lab.broker.hold(sandbox_id=sandbox_id, reason="for Ana", until=lab.now + 60)
        assert (held.status, held.status_reason) == (Status.HELD, "for Ana")
    assert await lab.store.find_lease("track", "track") is None
    with pytest.raises(NoSandboxesAvailableError):
        await lab.lease("other")
    lab.clock.advance(10 * LAB_SEC)
    expiry = Expiry(lab.store, clock=lab.clock, metrics=lab.metrics, grace_sec=0)
    assert (await expiry.run()).expired == 0
    with pytest.raises(AlreadyLeasedError):
        await lab.broker.act(Action.RESTORE, sandbox_id=leased)
    released = await lab.broker.act(Action.RELEASE, sandbox_id=leased)
    assert (released.status, released.held_until) == (Status.PENDING_DELETION, None)
    restored = await lab.broker.act(Action.RESTORE, sandbox_id=free.sandbox_id)
    assert (restored.status, restored.status_reason) == (Status.AVAILABLE, None)
    await lab.check()


async def test_a_hold_stops_a_deletion_that_waits(lab: Lab) -> None:
    await fill(lab.store, 1)
    sandbox_id = await lab.lease("track")
    await lab.broker.mark_for_deletion(track_id="track", sandbox_id=sandbox_id)
    await lab.broker.hold(sandbox_id=sandbox_id, reason="evidence")
    assert await rows_of(lab.store.deletable(now=lab.now + 10)) == []
    await lab.check()


async def test_a_hold_ends_by_itself(lab: Lab) -> None:
    await fill(lab.store, 3)
    assigner = new_assigner(lab.store, clock=lab.clock)
    holds = Holds(lab.store, clock=lab.clock, metrics=lab.metrics, assigner=assigner)
    leased = await lab.lease("track")
    other = await lab.replace("track", leased)
    unused = next(
        each.sandbox_id
        for each in await everything(lab.store)
        if each.sandbox_id not in (leased, other)
    )
    await lab.broker.hold(sandbox_id=unused, reason="for Ana")
    assert await holds.run() == HoldReport(held=2)
    lab.clock.advance(HOLD_SEC)
    assert await holds.run() == HoldReport(held=2, deleted=1, restored=1)
    assert await holds.run() == HoldReport()
    assert (await row(lab.store, leased)).status is Status.PENDING_DELETION
    assert (await lab.kinds(leased))[-2:] == ["sandbox.hold_overdue", "deletion.requested"]
    assert (await row(lab.store, unused)).status is Status.AVAILABLE
    assert (await row(lab.store, other)).status is Status.ALLOCATED
    await lab.check()


async def test_a_hold_whose_time_was_changed_ends_then(lab: Lab) -> None:
    await fill(lab.store, 1)
    assigner = new_assigner(lab.store, clock=lab.clock)
    holds = Holds(lab.store, clock=lab.clock, metrics=lab.metrics, assigner=assigner)
    sandbox_id = await lab.first()
    await lab.broker.hold(sandbox_id=sandbox_id, reason="for Ana")
    lab.clock.advance(HOLD_SEC - 1)
    longer = await lab.broker.hold(sandbox_id=sandbox_id, reason="for Ana", until=lab.now + 60)
    assert longer.held_until == lab.now + 60
    lab.clock.advance(59)
    assert await holds.run() == HoldReport(held=1)
    lab.clock.advance(1)
    assert await holds.run() == HoldReport(held=1, restored=1)


async def test_a_track_can_not_replace_in_a_loop_however_many_calls_race(lab: Lab) -> None:
    await fill(lab.store, 12)
    last = await lab.lease("track")
    for _ in range(4):
        last = await lab.replace("track", last)
    results = await asyncio.gather(*(lab.replace("track", last) for _ in range(5)))
    assert len(set(results)) == 1
    with pytest.raises(ReplacementLimitError) as refused:
        await lab.replace("track", results[0])
    assert refused.value.retry_after == LAB_SEC
    assert await lab.replace("track", last) == results[0], "a repeat is answered"
    by_operator = Replacement("track", "broken", by="operator")
    await lab.leases.replace(results[0], by_operator)
    assert (await lab.store.counts()).by_status[Status.HELD] == 6
    await lab.check()


async def test_a_quarantine_keeps_its_reason_until_it_is_restored(lab: Lab) -> None:
    await fill(lab.store, 1)
    sandbox_id = await lab.first()
    await lab.broker.act(Action.QUARANTINE, sandbox_id=sandbox_id, reason="wrong image")
    stale = await row(lab.store, sandbox_id)
    assert (stale.stale_reason, stale.status_reason) == (StaleReason.QUARANTINED, "wrong image")
    restored = await lab.broker.act(Action.RESTORE, sandbox_id=sandbox_id)
    assert restored.status_reason is None


async def test_many_are_quarantined_or_held_by_name_or_filter(lab: Lab) -> None:
    await fill(lab.store, 12)
    await fill(lab.store, 3, prefix="other")
    bulk = BulkChanges(
        lab.store, clock=lab.clock, assigner=new_assigner(lab.store, clock=lab.clock)
    )
    by_name = BulkFilter(Status.AVAILABLE, names=frozenset({"lab-00001", "lab-00010", "nobody"}))
    told = await bulk.change(by_name, limits=BulkLimits(dry_run=True), reason="wrong image")
    assert (told.matched, told.changed) == (2, 0)
    done = await bulk.change(by_name, limits=BulkLimits(), reason="wrong image")
    assert (done.matched, done.changed, done.not_found) == (2, 2, ["nobody"])
    stale = [each for each in await everything(lab.store) if each.status is Status.STALE]
    assert {each.name for each in stale} == {"lab-00001", "lab-00010"}
    assert {each.status_reason for each in stale} == {"wrong image"}
    others = BulkFilter(Status.AVAILABLE, "other-")
    held = await bulk.change(others, limits=BulkLimits(), reason="for Ana", hold_until=lab.now + 9)
    assert held.changed == 3
    assert (await lab.store.counts()).by_status[Status.HELD] == 3
    await lab.check()


async def test_many_are_restored_but_none_that_a_track_has_had_or_the_provider_lacks(
    lab: Lab,
) -> None:
    await fill(lab.store, 6)
    leased = await lab.lease("track")
    free = [each for each in await everything(lab.store) if each.status is Status.AVAILABLE]
    quarantine, keep, hold, missing, other = free
    for each in (quarantine, keep):
        await lab.broker.act(Action.QUARANTINE, sandbox_id=each.sandbox_id)
    for held in (hold.sandbox_id, leased):
        await lab.broker.hold(sandbox_id=held, reason="look at it")
    lost = decide_listing(missing, None, cause=operator(lab.now))
    assert lost is not None
    assert await lab.store.apply([lost]) == [True]
    bulk = BulkChanges(
        lab.store, clock=lab.clock, assigner=new_assigner(lab.store, clock=lab.clock)
    )
    names = frozenset({quarantine.name, missing.name, other.name})
    by_name = await bulk.restore(BulkFilter(Status.STALE, names=names), limits=BulkLimits())
    assert by_name.sandbox_ids == [quarantine.sandbox_id]
    assert by_name.not_found == sorted([missing.name, other.name])
    held_ones = await bulk.restore(BulkFilter(Status.HELD), limits=BulkLimits(), by="operator:ana")
    assert held_ones.sandbox_ids == [hold.sandbox_id]
    assert (await row(lab.store, keep.sandbox_id)).status is Status.STALE
    query = EventQuery(subject=hold.sandbox_id, actor="operator:ana")
    page = await lab.store.events.page(query, limit=9, cursor=None)
    assert [each.event.kind for each in page.items] == ["sandbox.restored"]
    await lab.check()
