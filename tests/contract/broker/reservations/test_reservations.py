"""Reservations: sandboxes that no stranger can lease, on every engine."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.action_model import Action
from sandyard.broker.pool.errors import NoSandboxesAvailableError
from sandyard.broker.pool.model import Claimed, Listed, Sandbox, Status
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.queue.service import QueuePosition
from sandyard.broker.reservations.errors import (
    InvalidReservationError,
    OverbookedError,
    ReservationExistsError,
    ReservationNotFoundError,
)
from sandyard.broker.reservations.model import Booking, Reservation, ReservationStatus
from sandyard.broker.reservations.service import ReservationReport
from sandyard.broker.verification import verify
from sandyard.kit.changes.events import EventQuery
from sandyard.kit.changes.transitions import Transition
from tests.fakes.provider import FakeProvider
from tests.support.broker.pools import LAB_SEC, check_invariants, discoveries, everything, fill
from tests.support.broker.services import new_assigner, new_broker, new_reservations, new_sync
from tests.support.clocks import ManualClock

HOUR = 3600


class Course:
    """A pool, an operator who reserves for a course, and tracks of it and of others."""

    def __init__(self, store: PoolStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.provider = FakeProvider()
        self.metrics = BrokerMetrics(CollectorRegistry())
        self.broker = new_broker(store, clock=clock, metrics=self.metrics)
        self.reservations = new_reservations(store, clock=clock)

    @property
    def now(self) -> int:
        return int(self.clock.now())

    def booking(
        self, count: int, *, after: int = 0, hours: int = 1, tracks: str = "course-", name: str = ""
    ) -> Booking:
        start = self.now + after
        return Booking(count, start, start + hours * HOUR, tracks, name_prefix=name)

    async def reserve(self, count: int, **when: int) -> Reservation:
        made, is_new = await self.reservations.reserve(self.booking(count, **when))  # type: ignore[arg-type]
        assert is_new
        return made

    async def lease(self, track: str) -> Claimed:
        return await self.broker.allocate(track_id=track)

    async def is_refused(self, track: str) -> bool:
        try:
            await self.lease(track)
        except NoSandboxesAvailableError:
            return True
        return False

    async def grow(self, *names: str) -> None:
        self.provider.sandboxes |= {f"e-{each}": Listed(f"e-{each}", each) for each in names}
        await self.sync()

    async def sync(self) -> None:
        hours = LAB_SEC / 3600
        await new_sync(
            self.store,
            self.provider,
            clock=self.clock,
            metrics=self.metrics,
            lab_duration_hours=hours,
        ).run()

    async def kept(self, reservation: Reservation) -> list[Sandbox]:
        rows = await everything(self.store)
        return [each for each in rows if each.reserved_for == reservation.reservation_id]

    async def events(self, subject: str) -> list[str]:
        page = await self.store.events.page(EventQuery(subject=subject), limit=100, cursor=None)
        return [each.event.kind for each in reversed(page.items)]

    async def check(self) -> None:
        await check_invariants(self.store)
        assert (await verify(self.store)).problems == []


@pytest.fixture
def course(store: PoolStore, clock: ManualClock) -> Course:
    return Course(store, clock)


async def test_what_is_reserved_no_stranger_gets_and_its_tracks_get_first(course: Course) -> None:
    await fill(course.store, 4)
    reserved = await course.reserve(3)
    assert (reserved.kept, reserved.missing) == (3, 0)
    assert reserved.status(course.now) is ReservationStatus.FILLED
    kept = {each.sandbox_id for each in await course.kept(reserved)}
    stranger = await course.lease("stranger")
    assert stranger.lease.sandbox_id not in kept
    assert await course.is_refused("another-stranger")
    leased = {(await course.lease(f"course-{n}")).lease.sandbox_id for n in range(3)}
    assert leased == kept
    assert await course.is_refused("course-3")
    assert await course.kept(reserved) == []
    after = await course.reservations.get(reserved.reservation_id)
    assert (after.kept, after.missing) == (3, 0), "a lease counts as one of the reserved"
    await course.check()


async def test_its_tracks_go_on_with_the_rest(course: Course) -> None:
    await fill(course.store, 3)
    reserved = await course.reserve(1)
    first, second = await course.lease("course-1"), await course.lease("course-2")
    rows = {each.sandbox_id: each for each in await everything(course.store)}
    assert rows[first.lease.sandbox_id].reservation_id == reserved.reservation_id
    assert rows[second.lease.sandbox_id].reservation_id is None
    assert (await course.lease("course-1")) == Claimed(first.lease, is_new=False)
    await course.check()


async def test_before_its_time_all_are_free_and_then_they_are_kept(course: Course) -> None:
    await fill(course.store, 3)
    reserved = await course.reserve(2, after=600)
    assert reserved.status(course.now) is ReservationStatus.SCHEDULED
    assert await course.kept(reserved) == []
    await course.lease("stranger")
    await course.reservations.maintain()
    assert await course.kept(reserved) == []
    course.clock.advance(600)
    report = await course.reservations.maintain()
    assert (report.filled, report.short) == (1, 0)
    assert await course.reservations.maintain() == ReservationReport(), "nothing has happened"
    assert len(await course.kept(reserved)) == 2
    assert await course.is_refused("stranger-2")


async def test_at_its_end_what_nobody_leased_goes_back(course: Course) -> None:
    await fill(course.store, 3)
    reserved = await course.reserve(3)
    await course.lease("course-1")
    course.clock.advance(HOUR)
    assert await course.is_refused("course-2"), "its time is over, and nothing is free yet"
    assert (await course.reservations.maintain()).ended == 1
    assert await course.kept(reserved) == []
    await course.lease("stranger")
    ended = await course.reservations.get(reserved.reservation_id)
    assert ended.status(course.now) is ReservationStatus.ENDED
    assert ended.ended_at == course.now
    assert await course.store.open_reservations() == []
    kinds = await course.events(reserved.reservation_id)
    assert kinds == ["reservation.created", "reservation.filled", "reservation.ended"]
    await course.check()


async def test_a_cancelled_one_gives_back_at_once_and_twice_is_the_same(course: Course) -> None:
    await fill(course.store, 2)
    reserved = await course.reserve(2)
    cancelled = await course.reservations.cancel(reserved.reservation_id)
    assert cancelled.status(course.now) is ReservationStatus.CANCELLED
    assert await course.kept(reserved) == []
    await course.lease("stranger")
    again = await course.reservations.cancel(reserved.reservation_id)
    assert again.cancelled_at == cancelled.cancelled_at
    with pytest.raises(ReservationNotFoundError):
        await course.reservations.cancel("res-unknown")
    await course.check()


async def test_what_is_missing_is_told_and_filled_first_as_the_pool_grows(course: Course) -> None:
    await course.grow("lab-1", "lab-2", "lab-3")
    await course.lease("stranger-1")
    await course.lease("stranger-2")
    reserved = await course.reserve(3)
    assert (reserved.kept, reserved.missing) == (1, 2)
    assert reserved.status(course.now) is ReservationStatus.PENDING
    assert reserved.is_short
    assert isinstance(await course.broker.queue(track_id="waits"), QueuePosition)
    await course.grow("new-1", "new-2", "new-3")
    filled = await course.reservations.get(reserved.reservation_id)
    assert (filled.missing, filled.is_short) == (0, False)
    assert isinstance(await course.broker.queue(track_id="waits"), Claimed), "the third is theirs"
    kinds = await course.events(reserved.reservation_id)
    assert kinds.index("reservation.short") < kinds.index("reservation.filled")
    await course.check()


async def test_one_of_its_tracks_that_waits_is_served_by_what_comes_for_it(course: Course) -> None:
    await fill(course.store, 2)
    await course.lease("stranger-1")
    await course.lease("stranger-2")
    assert isinstance(await course.broker.queue(track_id="stranger-3"), QueuePosition)
    reserved = await course.reserve(2)
    assert isinstance(await course.broker.queue(track_id="course-1"), QueuePosition)
    await course.grow("new-1")
    assert isinstance(await course.broker.queue(track_id="stranger-3"), QueuePosition)
    ready = await course.reservations.get(reserved.reservation_id)
    assert (ready.kept, ready.missing) == (1, 1)
    assert await course.is_refused("course-2"), "it is kept for the one who waited"
    served = await course.broker.queue(track_id="course-1")
    assert isinstance(served, Claimed)
    assert served.lease.name == "new-1"
    await course.check()


async def test_who_stops_waiting_leaves_it_to_the_reservation(course: Course) -> None:
    await fill(course.store, 1)
    await course.lease("stranger-1")
    reserved = await course.reserve(1)
    await course.broker.queue(track_id="course-1")
    await course.grow("new-1")
    await course.broker.leave_queue(track_id="course-1", idempotency_key=None)
    assert [each.name for each in await course.kept(reserved)] == ["new-1"]
    assert (await course.reservations.get(reserved.reservation_id)).kept == 1
    assert await course.is_refused("stranger-2")
    await course.lease("course-2")
    await course.check()


class Cancelling:
    """The store as somebody sees it who looks a moment before the reservation is cancelled, and
    before a newcomer takes whatever is free."""

    def __init__(self, course: Course, reservation_id: str) -> None:
        self._course = course
        self._reservation_id = reservation_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._course.store, name)

    async def open_reservations(self) -> Sequence[Reservation]:
        seen = await self._course.store.open_reservations()
        await self._course.reservations.cancel(self._reservation_id)
        return seen

    async def apply(self, transitions: Sequence[Transition[Any]]) -> Sequence[bool]:
        applied = await self._course.store.apply(transitions)
        assert await self._course.is_refused("newcomer"), "it was free before who waited had it"
        return applied


async def test_what_it_does_not_want_any_more_goes_to_who_waits(course: Course) -> None:
    await fill(course.store, 1)
    await course.lease("stranger")
    reserved = await course.reserve(1)
    assert isinstance(await course.broker.queue(track_id="waits"), QueuePosition)
    late: Any = Cancelling(course, reserved.reservation_id)
    freed = discoveries(2, now=course.now)[1:]
    assert await new_assigner(late, clock=course.clock).apply(freed) == [True]
    assert isinstance(await course.broker.queue(track_id="waits"), Claimed)
    await course.check()


async def test_a_lost_sandbox_is_missing_again_and_replaced(course: Course) -> None:
    await fill(course.store, 3)
    reserved = await course.reserve(2)
    broken = (await course.kept(reserved))[0]
    await course.broker.act(Action.QUARANTINE, sandbox_id=broken.sandbox_id)
    assert (await course.reservations.get(reserved.reservation_id)).missing == 1
    await course.reservations.maintain()
    assert (await course.reservations.get(reserved.reservation_id)).missing == 0
    assert len(await course.kept(reserved)) == 2
    await course.broker.act(Action.RESTORE, sandbox_id=broken.sandbox_id)
    await course.lease("stranger")
    await course.check()


async def test_overbooking_is_refused_with_what_is_possible(course: Course) -> None:
    await fill(course.store, 10)
    await course.reserve(6)
    await course.reserve(4, after=600)
    with pytest.raises(OverbookedError) as refused:
        await course.reserve(1, after=60, hours=1)
    assert refused.value.details == {"possible": 0}
    with pytest.raises(OverbookedError) as refused:
        await course.reserve(7, after=HOUR)
    assert refused.value.details == {"possible": 6}, "the first is over then, the second is not"
    await course.reserve(10, after=HOUR + 600)
    larger = new_reservations(course.store, clock=course.clock, pool_max_total=300)
    made, _ = await larger.reserve(course.booking(290))
    assert made.missing == 286


async def test_two_who_book_at_once_do_not_overbook(course: Course) -> None:
    await fill(course.store, 10)

    async def book() -> bool:
        try:
            await course.reserve(4, after=600)
        except OverbookedError:
            return False
        return True

    assert sum(await asyncio.gather(*(book() for _ in range(6)))) == 2
    booked = await course.store.open_reservations()
    assert sum(each.count for each in booked) == 8


async def test_a_repeat_with_the_key_makes_no_second_one(course: Course) -> None:
    await fill(course.store, 4)
    asked = course.booking(2)
    first, is_new = await course.reservations.reserve(asked, key="monday")
    second, is_new_again = await course.reservations.reserve(asked, key="monday")
    assert (is_new, is_new_again) == (True, False)
    assert second.reservation_id == first.reservation_id
    with pytest.raises(ReservationExistsError):
        await course.reservations.reserve(course.booking(1), key="monday")


async def test_the_calendar_shows_what_overlaps_in_pages(course: Course) -> None:
    await fill(course.store, 9)
    for hour in range(6):
        await course.reserve(1, after=hour * HOUR)
    cursor, seen = None, []
    while True:
        page = await course.reservations.calendar(
            from_at=course.now + HOUR, to_at=course.now + 4 * HOUR, limit=2, cursor=cursor
        )
        seen += [(each.starts_at - course.now) // HOUR for each in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [1, 2, 3]


async def test_a_prefix_narrows_what_is_kept(course: Course) -> None:
    await fill(course.store, 3, prefix="small")
    await fill(course.store, 3, prefix="large")
    asked = course.booking(2, name="large-")
    reserved, _ = await course.reservations.reserve(asked)
    assert all(each.name.startswith("large-") for each in await course.kept(reserved))
    got = await course.broker.allocate(track_id="course-1", name_prefix="small-")
    assert got.lease.name.startswith("small-")


async def test_a_repeat_without_a_beginning_is_the_same_reservation(course: Course) -> None:
    await fill(course.store, 2)
    asked = Booking(1, None, course.now + HOUR, "course-")
    first, is_new = await course.reservations.reserve(asked, key="k")
    assert is_new
    assert first.starts_at == course.now
    course.clock.advance(5)
    assert await course.reservations.reserve(asked, key="k") == (first, False)
    for other in (replace(asked, starts_at=course.now), replace(asked, count=2)):
        with pytest.raises(ReservationExistsError):
            await course.reservations.reserve(other, key="k")


async def test_a_calendar_has_a_beginning_before_its_end(course: Course) -> None:
    with pytest.raises(InvalidReservationError):
        await course.reservations.calendar(from_at=2, to_at=1, limit=9, cursor=None)


@pytest.mark.parametrize(
    "asked",
    [
        Booking(1, 100, 200, "course-"),
        Booking(1, 1_900_000_000, 1_900_000_000, "course-"),
        Booking(1, 1_900_000_000, 2_000_000_000, "course-"),
        Booking(1, 1_800_000_000, 1_800_000_100),
        Booking(1, 1_800_000_000, 1_800_000_100, "course-", client="acme"),
    ],
)
async def test_senseless_times_and_holders_are_refused(course: Course, asked: Booking) -> None:
    await fill(course.store, 1)
    with pytest.raises(InvalidReservationError):
        await course.reservations.reserve(asked)


async def test_claims_race_with_a_reservation_and_no_stranger_gets_what_is_kept(
    course: Course,
) -> None:
    await fill(course.store, 40)
    strangers = [asyncio.create_task(course.is_refused(f"stranger-{n}")) for n in range(30)]
    reserved = await course.reserve(20)
    members = [asyncio.create_task(course.is_refused(f"course-{n}")) for n in range(10)]
    await asyncio.gather(*strangers, *members)
    await course.reservations.maintain()
    rows = await everything(course.store)
    for each in rows:
        if each.status is Status.ALLOCATED and each.reservation_id is not None:
            assert (each.allocated_to_track or "").startswith("course-")
    counted = [each for each in rows if each.reservation_id == reserved.reservation_id]
    assert len(counted) == (await course.reservations.get(reserved.reservation_id)).kept
    await course.check()
