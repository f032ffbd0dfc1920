"""Reservations: sandboxes reserved for some tracks during a period. No I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import ClassVar

from sandyard.broker.pool.model import Sandbox, Status, decide_reserved, seconds_of
from sandyard.broker.reservations.errors import InvalidReservationError, OverbookedError
from sandyard.kit.changes.transitions import Cause, Transition, changed, created

LONGEST_SEC = 366 * 24 * 3600
MOST_SANDBOXES = 100_000

OVER = "its time is over"
CANCELLED = "cancelled by an operator"


class ReservationStatus(StrEnum):
    SCHEDULED = "scheduled"
    """It has not started."""
    PENDING = "pending"
    """It has started, and some of its sandboxes are missing."""
    FILLED = "filled"
    ENDED = "ended"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Booking:
    """What an operator requests: how many sandboxes, for whom, and for what time."""

    count: int
    starts_at: int | None
    """None: when the reservation is created."""
    ends_at: int
    track_prefix: str | None = None
    client: str | None = None
    name_prefix: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Reservation:
    SUBJECT: ClassVar[str] = "reservation_id"
    OWNER: ClassVar[str | None] = None

    reservation_id: str
    count: int
    starts_at: int
    ends_at: int
    created_at: int
    track_prefix: str | None = None
    client: str | None = None
    name_prefix: str = ""
    note: str = ""
    kept: int = 0
    """How many sandboxes count for it: those reserved for it, and those leased by its tracks."""
    is_short: bool = False
    """It was reported that some are missing."""
    cancelled_at: int | None = None
    ended_at: int | None = None
    """When the last sandbox reserved for it went back to the pool."""
    sequence: int = 0

    @property
    def missing(self) -> int:
        return max(0, self.count - self.kept)

    def is_of(self, booking: Booking) -> bool:
        starts_at = self.created_at if booking.starts_at is None else booking.starts_at
        wanted = asdict(replace(booking, starts_at=starts_at))
        return all(getattr(self, name) == value for name, value in wanted.items())

    def status(self, now: int) -> ReservationStatus:
        if self.cancelled_at is not None:
            return ReservationStatus.CANCELLED
        if self.ended_at is not None or now >= self.ends_at:
            return ReservationStatus.ENDED
        if now < self.starts_at:
            return ReservationStatus.SCHEDULED
        return ReservationStatus.PENDING if self.missing else ReservationStatus.FILLED

    def is_active(self, now: int) -> bool:
        return self.status(now) in (ReservationStatus.PENDING, ReservationStatus.FILLED)

    def is_over(self, now: int) -> bool:
        return self.status(now) in (ReservationStatus.ENDED, ReservationStatus.CANCELLED)

    def admits(self, track_id: str, client: str | None) -> bool:
        if self.client is not None:
            return client == self.client
        return track_id.startswith(self.track_prefix or "")

    def wants(self, row: Sandbox, now: int) -> bool:
        return self.needs_more(now) and row.name.startswith(self.name_prefix)

    def needs_more(self, now: int) -> bool:
        return self.status(now) is ReservationStatus.PENDING


@dataclass(frozen=True, slots=True)
class Calendar:
    """Shared by all reservations of the pool: each new one changes it, so that of two concurrent
    bookings the second takes the first into account."""

    SUBJECT: ClassVar[str] = "calendar"
    OWNER: ClassVar[str | None] = None

    last_reservation_id: str
    calendar: str = "calendar"
    sequence: int = 0


def most_booked(others: Iterable[Reservation], starts_at: int, ends_at: int, now: int) -> int:
    """The maximum number of sandboxes that the others book at any one time in this period."""
    alike = [
        each
        for each in others
        if not each.is_over(now) and each.starts_at < ends_at and each.ends_at > starts_at
    ]
    moments = [starts_at, *(each.starts_at for each in alike if each.starts_at > starts_at)]
    return max(
        sum(each.count for each in alike if each.starts_at <= moment < each.ends_at)
        for moment in moments
    )


def decide_reservation(
    booking: Booking,
    reservation_id: str,
    *,
    others: Sequence[Reservation],
    capacity: int,
    cause: Cause,
) -> Transition[Reservation]:
    """A new reservation. Raises OverbookedError if the pool is too small for it and the others."""
    now = seconds_of(cause)
    starts_at = now if booking.starts_at is None else booking.starts_at
    _require_sane(booking, starts_at, now)
    possible = capacity - most_booked(others, starts_at, booking.ends_at, now)
    if booking.count > possible:
        raise OverbookedError(possible=max(0, possible))
    booked = asdict(replace(booking, starts_at=starts_at))
    reservation = Reservation(reservation_id, created_at=now, **booked)
    return created(reservation, "reservation.created", cause)


def _require_sane(booking: Booking, starts_at: int, now: int) -> None:
    if (booking.track_prefix is None) == (booking.client is None):
        raise InvalidReservationError(details={"field": "track_prefix"})
    length = booking.ends_at - starts_at
    if booking.ends_at <= now or not 0 < length <= LONGEST_SEC:
        raise InvalidReservationError(details={"field": "to"})


def decide_booked(
    calendar: Calendar | None, reservation: Reservation, cause: Cause
) -> Transition[Calendar]:
    last = reservation.reservation_id
    if calendar is None:
        return created(Calendar(last), "calendar.changed", cause)
    return changed(calendar, replace(calendar, last_reservation_id=last), "calendar.changed", cause)


def decide_kept(
    reservation: Reservation, free: Sequence[Sandbox], cause: Cause
) -> tuple[Sequence[Transition[Sandbox]], Transition[Reservation]]:
    own = reservation.reservation_id
    rows = [decide_reserved(each, own, cause, reservation_id=own) for each in free]
    return rows, decide_counted(reservation, len(free), cause)


def decide_counted(reservation: Reservation, more: int, cause: Cause) -> Transition[Reservation]:
    after = replace(reservation, kept=reservation.kept + more)
    if after.missing:
        return changed(reservation, after, "reservation.kept", cause)
    return changed(reservation, replace(after, is_short=False), "reservation.filled", cause)


def decide_lost(reservation: Reservation, cause: Cause) -> Transition[Reservation]:
    after = replace(reservation, kept=max(0, reservation.kept - 1))
    return changed(reservation, after, "reservation.lost", cause)


def decide_short(reservation: Reservation, cause: Cause) -> Transition[Reservation] | None:
    """It has started, and the pool has no more sandboxes for it; None if that was reported
    before."""
    if reservation.is_short or not reservation.needs_more(seconds_of(cause)):
        return None
    why = cause.because(f"{reservation.missing} of {reservation.count} are missing")
    return changed(reservation, replace(reservation, is_short=True), "reservation.short", why)


def decide_cancelled(reservation: Reservation, cause: Cause) -> Transition[Reservation] | None:
    """Cancel it, so that nobody leases from it; None if it is over."""
    now = seconds_of(cause)
    if reservation.is_over(now):
        return None
    after = replace(reservation, cancelled_at=now)
    return changed(reservation, after, "reservation.cancelled", cause.because(CANCELLED))


def decide_ended(reservation: Reservation, cause: Cause) -> Transition[Reservation] | None:
    """It is over, and nothing is reserved for it any more; None if it is not, or has already
    ended."""
    now = seconds_of(cause)
    if reservation.ended_at is not None or not reservation.is_over(now):
        return None
    reason = OVER if reservation.cancelled_at is None else CANCELLED
    after = replace(reservation, ended_at=now)
    return changed(reservation, after, "reservation.ended", cause.because(reason))


def loses_reserved(transition: Transition[Sandbox]) -> bool:
    """Whether a reservation loses a sandbox by it: a reserved one can't be leased any more, or a
    leased one is held."""
    before, after = transition.before, transition.after
    if before is None or before.reservation_id is None:
        return False
    if before.status is Status.ALLOCATED:
        return after is not None and after.status is Status.HELD
    usable = (Status.RESERVED, Status.ALLOCATED)
    counts = after is not None and after.status in usable and after.reservation_id is not None
    return before.status is Status.RESERVED and not counts


def in_turn(reservations: Iterable[Reservation]) -> list[Reservation]:
    """In the order in which they are filled: by start, then by creation."""
    return sorted(reservations, key=lambda r: (r.starts_at, r.created_at, r.reservation_id))
