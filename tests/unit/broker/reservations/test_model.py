"""Reservations: how much others have, and what each state means."""

from dataclasses import replace

import pytest

from sandyard.broker.pool.model import Status
from sandyard.broker.reservations.errors import OverbookedError
from sandyard.broker.reservations.model import (
    Booking,
    Reservation,
    ReservationStatus,
    decide_cancelled,
    decide_counted,
    decide_ended,
    decide_kept,
    decide_lost,
    decide_reservation,
    decide_short,
    in_turn,
    most_booked,
)
from sandyard.kit.changes.transitions import Cause
from tests.support.broker.pools import NOW, free_sandboxes, operator

HOUR = 3600


def reservation(name: str = "r", count: int = 2, *, start: int = 0, hours: int = 1) -> Reservation:
    """One that begins so many seconds from now."""
    at = NOW + start
    return Reservation(name, count, at, at + hours * HOUR, NOW, track_prefix="course-", sequence=1)


def at(seconds: int) -> Cause:
    return operator(NOW + seconds)


def test_only_what_overlaps_counts_and_the_worst_moment_decides() -> None:
    others = [
        reservation("a", 5),
        reservation("b", 3, start=HOUR // 2),
        reservation("c", 4, start=HOUR),
        replace(reservation("d", 100), cancelled_at=NOW),
    ]
    assert most_booked(others, NOW, NOW + HOUR, NOW) == 8
    assert most_booked(others, NOW + HOUR, NOW + 2 * HOUR, NOW) == 7
    assert most_booked(others, NOW + 9 * HOUR, NOW + 10 * HOUR, NOW) == 0


def test_the_last_that_fits_is_taken_and_one_more_is_refused() -> None:
    asked = Booking(5, NOW, NOW + HOUR, "course-")
    others = [reservation("a", 5)]
    made = decide_reservation(asked, "r", others=others, capacity=10, cause=at(0))
    assert made.result.is_of(asked)
    with pytest.raises(OverbookedError) as refused:
        decide_reservation(replace(asked, count=6), "r", others=others, capacity=10, cause=at(0))
    assert refused.value.details == {"possible": 5}


def test_its_states_follow_its_time_and_what_is_missing() -> None:
    one = reservation(start=10)
    assert one.status(NOW + 9) is ReservationStatus.SCHEDULED
    assert one.status(NOW + 10) is ReservationStatus.PENDING
    full = replace(one, kept=2)
    assert full.status(NOW + 10) is ReservationStatus.FILLED
    assert full.status(NOW + 10 + HOUR) is ReservationStatus.ENDED
    assert replace(full, cancelled_at=NOW).status(NOW + 10) is ReservationStatus.CANCELLED


def test_who_belongs_to_it() -> None:
    by_prefix = reservation()
    assert by_prefix.admits("course-1", None)
    assert not by_prefix.admits("other", "course-")
    by_client = replace(by_prefix, track_prefix=None, client="acme")
    assert by_client.admits("any", "acme")
    assert not by_client.admits("any", None)


def test_what_is_kept_is_marked_and_counted() -> None:
    rows, counted = decide_kept(reservation(count=3), free_sandboxes(2), at(1))
    assert [each.result.status for each in rows] == [Status.RESERVED] * 2
    assert {each.result.reserved_for for each in rows} == {"r"}
    assert (counted.result.kept, counted.events[0].kind) == (2, "reservation.kept")
    filled = decide_counted(replace(counted.result, is_short=True), 1, at(2))
    assert (filled.result.is_short, filled.events[0].kind) == (False, "reservation.filled")
    assert decide_lost(filled.result, at(3)).result.missing == 1


def test_that_some_are_missing_is_told_once_and_not_before_its_time() -> None:
    later = reservation(start=10)
    assert decide_short(later, at(9)) is None
    short = decide_short(later, at(10))
    assert short is not None
    assert short.events[0].reason == "2 of 2 are missing"
    assert decide_short(short.result, at(11)) is None
    assert decide_short(replace(later, kept=2), at(10)) is None


def test_it_ends_once_by_time_or_by_word() -> None:
    one = reservation()
    assert decide_ended(one, at(HOUR - 1)) is None
    ended = decide_ended(one, at(HOUR))
    assert ended is not None
    assert decide_ended(ended.result, at(HOUR + 1)) is None
    cancelled = decide_cancelled(one, at(5))
    assert cancelled is not None
    assert decide_cancelled(cancelled.result, at(6)) is None
    assert decide_cancelled(one, at(HOUR)) is None
    by_word = decide_ended(cancelled.result, at(6))
    assert by_word is not None
    assert by_word.events[0].reason == "cancelled by an operator"


def test_those_that_began_first_are_filled_first() -> None:
    late, early = reservation("a", start=5), reservation("b")
    assert in_turn([late, early]) == [early, late]
