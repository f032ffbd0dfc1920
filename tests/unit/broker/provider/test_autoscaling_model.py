"""The pool's size: how many to ask for, and what is told."""

from dataclasses import replace

import pytest

from sandyard.broker.provider.model import (
    MOST_AT_ONCE,
    Autoscaler,
    AutoscalingPolicy,
    Level,
    decide_answered,
    decide_level,
    decide_stuck,
    lacking,
    level_of,
    to_create,
)
from sandyard.broker.reservations.model import Reservation
from tests.support.broker.pools import NOW, operator

POLICY = AutoscalingPolicy(min_available=10, max_total=50, low_available=3, per_hour=15)


@pytest.mark.parametrize(
    ("available", "level"), [(0, Level.EMPTY), (1, Level.LOW), (3, Level.LOW), (4, Level.OK)]
)
def test_levels(available: int, level: Level) -> None:
    assert level_of(available, POLICY) is level


@pytest.mark.parametrize(
    ("autoscaler", "available", "total", "lacks", "wanted"),
    [
        pytest.param(Autoscaler(), 10, 20, 0, 0, id="enough"),
        pytest.param(Autoscaler(), 4, 20, 0, 6, id="too few"),
        pytest.param(Autoscaler(), 10, 20, 5, 5, id="a reservation lacks some"),
        pytest.param(Autoscaler(), 0, 48, 0, 2, id="the pool is nearly as large as it may be"),
        pytest.param(Autoscaler(), 0, 60, 0, 0, id="the pool is too large"),
        pytest.param(Autoscaler(created=12, window_at=NOW), 0, 0, 0, 3, id="what the hour allows"),
        pytest.param(Autoscaler(created=15, window_at=NOW - 3600), 0, 0, 0, 10, id="a new hour"),
        pytest.param(Autoscaler(asked="a b"), 6, 20, 0, 2, id="some are on their way"),
        pytest.param(
            Autoscaler(next_attempt_at=NOW + 1), 0, 0, 0, 0, id="it waits after a failure"
        ),
    ],
)
def test_how_many_are_asked_for(
    autoscaler: Autoscaler, available: int, total: int, lacks: int, wanted: int
) -> None:
    asked = to_create(autoscaler, POLICY, available=available, total=total, lacking=lacks, now=NOW)
    assert asked == wanted


def test_never_too_many_at_once() -> None:
    generous = AutoscalingPolicy(min_available=1000, per_hour=1000)
    found = to_create(Autoscaler(), generous, available=0, total=0, lacking=0, now=NOW)
    assert found == MOST_AT_ONCE


def test_reservations_count_from_a_while_before_they_begin() -> None:
    soon = Reservation("r", 4, NOW + 1800, NOW + 5400, NOW, track_prefix="c", kept=1)
    assert lacking([soon], now=NOW, lookahead_sec=1800) == 3
    assert lacking([soon], now=NOW, lookahead_sec=1799) == 0
    assert lacking([replace(soon, cancelled_at=NOW)], now=NOW, lookahead_sec=1800) == 0


def reported(*availables: int) -> list[tuple[str, int]]:
    """The events of a pool that has so many available, one after the other."""
    autoscaler: Autoscaler | None = None
    found: list[tuple[str, int]] = []
    for available in availables:
        decided = decide_level(autoscaler, available, POLICY, operator(NOW))
        if decided is not None:
            [event] = decided.events
            assert (event.data["available"], event.data["threshold"]) == (available, 3)
            found.append((event.kind, available))
            autoscaler = decided.result
    return found


def test_a_level_is_reported_when_it_changes() -> None:
    assert reported(10) == []
    assert reported(3, 3, 0) == [("pool.low", 3), ("pool.empty", 0)]
    assert reported(3, 5) == [("pool.low", 3), ("pool.recovered", 5)]


def test_a_pool_around_its_threshold_or_zero_is_reported_once() -> None:
    assert reported(3, 4, 3, 4, 3) == [("pool.low", 3)]
    assert reported(0, 1, 0, 3, 4, 0, 5) == [("pool.empty", 0), ("pool.recovered", 5)]


def test_the_wait_after_a_failure_doubles_up_to_a_bound() -> None:
    autoscaler = Autoscaler(asked="a", sequence=1)
    waits = []
    for _ in range(8):
        failed = decide_answered(autoscaler, [], operator(NOW), failure="500", policy=POLICY)
        autoscaler = failed.result
        waits.append(autoscaler.next_attempt_at - NOW)
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_that_nothing_creates_what_is_missing_is_told_once_and_that_none_is_missing() -> None:
    why = "the provider can't create sandboxes"
    assert decide_stuck(None, 0, why, operator(NOW)) is None
    assert decide_stuck(None, 3, None, operator(NOW)) is None
    told = decide_stuck(None, 3, why, operator(NOW))
    assert told is not None
    [event] = told.events
    assert (event.kind, event.reason) == ("pool.cannot_grow", f"{why}, and 3 are missing")
    assert decide_stuck(told.result, 4, why, operator(NOW)) is None
    again = decide_stuck(told.result, 0, why, operator(NOW))
    assert again is not None
    assert (again.events[0].kind, again.result.is_stuck) == ("pool.sufficient", False)
