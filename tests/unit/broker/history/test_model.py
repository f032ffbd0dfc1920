"""What follows from the pool's samples: rates, the end of the pool, and steps of time."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandyard.broker.history.model import (
    MINUTE_SEC,
    RATE_SEC,
    Outlook,
    PoolSample,
    in_steps,
    minute_of,
    outlook,
)
from sandyard.broker.pool.model import Status

NOW = 1_800_000_000


def samples(*available: int, leases: int = 0) -> list[PoolSample]:
    """One for each minute up to now, the last of this minute."""
    first = NOW - (len(available) - 1) * MINUTE_SEC
    return [
        PoolSample(first + number * MINUTE_SEC, {Status.AVAILABLE: count}, 0, leases)
        for number, count in enumerate(available)
    ]


def test_a_minute_begins_at_its_first_second() -> None:
    assert [minute_of(each) for each in (120, 179.9, 180)] == [120, 120, 180]


def test_without_samples_nothing_is_known() -> None:
    assert outlook([], available=5, now=NOW) == Outlook(None, None)


def test_leases_per_minute_are_of_the_last_quarter_of_an_hour() -> None:
    taken = samples(*[9] * 40, leases=4)
    old = [each for each in taken if each.at <= NOW - RATE_SEC]
    busy = [PoolSample(each.at, each.counts, 0, 1000) for each in old]
    assert outlook([*busy, *taken[len(old) :]], available=9, now=NOW).leases_per_minute == 4


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        ((30, 20, 10), 60),
        ((30, 28, 26, 24), 720),
        ((10, 10, 10), None),
        ((10, 20, 30), None),
        ((20, 10), None),
        ((9, 4, 0), 0),
        ((40, 10, 39, 12, 38, 11, 37, 30), None),
        ((40, 40, 40, 40, 39, 40, 40, 40, 40, 39), None),
    ],
)
def test_the_pool_is_exhausted_when_its_decline_reaches_nothing(
    available: Sequence[int], expected: int | None
) -> None:
    found = outlook(samples(*available), available=available[-1], now=NOW)
    assert found.exhausted_in_sec == expected


def test_what_lasts_for_more_than_a_week_is_not_foretold() -> None:
    slow = samples(*[100_000 - number // 10 for number in range(15)])
    assert outlook(slow, available=100_000, now=NOW).exhausted_in_sec is None


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 60))
def test_steps_lose_no_lease_and_end_with_the_last_counts(counts: list[int], minutes: int) -> None:
    taken = [
        PoolSample(NOW + n * MINUTE_SEC, {Status.AVAILABLE: each}, 0, each)
        for n, each in enumerate(counts)
    ]
    steps = in_steps(taken, minutes * MINUTE_SEC)
    assert sum(each.leases for each in steps) == sum(counts)
    assert [each.at for each in steps] == sorted({each.at for each in steps})
    assert all(each.at % (minutes * MINUTE_SEC) == 0 for each in steps)
    if counts:
        assert steps[-1].available == counts[-1]
