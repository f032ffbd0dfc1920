"""When readings were missing, from the buckets that have some."""

import pytest

from sandyard.console.gaps import Range, strip

HOUR = Range(begins_at=0, ends_at=3600, known_from=-100, step=60)


def found(buckets: list[float], within: Range = HOUR) -> list[tuple[str, float, float]]:
    return [
        (each.kind, each.begins_at, each.ends_at) for each in strip("t", buckets, within).stretches
    ]


def minutes(*numbers: int) -> list[float]:
    return [number * 60.0 for number in numbers]


def test_a_device_that_never_stopped_has_no_gap() -> None:
    assert found(minutes(*range(60))) == [("readings", 0, 3600)]


def test_a_hole_is_a_gap_from_the_last_bucket_to_the_next() -> None:
    sent = minutes(*range(20), *range(27, 60))
    assert found(sent) == [("readings", 0, 1200), ("gap", 1200, 1620), ("readings", 1620, 3600)]


def test_silence_at_either_end_is_a_gap() -> None:
    assert found(minutes(*range(10, 50))) == [
        ("gap", 0, 600),
        ("readings", 600, 3000),
        ("gap", 3000, 3600),
    ]
    assert found([]) == [("gap", 0, 3600)]


def test_one_bucket_that_is_not_over_yet_is_no_gap() -> None:
    assert found(minutes(*range(59))) == [("readings", 0, 3600)]


def test_what_sends_now_and_then_misses_nothing_between() -> None:
    assert found(minutes(*range(0, 60, 5))) == [("readings", 0, 3600)]
    sent = minutes(*range(0, 20, 5), *range(40, 60, 5))
    assert ("gap", 960, 2400) in found(sent)


@pytest.mark.parametrize("known_from", [1800, 1830])
def test_nothing_is_missing_before_a_device_was_registered(known_from: float) -> None:
    within = Range(0, 3600, known_from, 60)
    assert found(minutes(*range(30, 60)), within) == [
        ("before", 0, 1800),
        ("readings", 1800, 3600),
    ]
    assert found([], Range(0, 3600, 9000, 60)) == [("before", 0, 3600)]


def test_shares_fill_the_strip_and_gaps_are_named() -> None:
    drawn = strip("temperature", minutes(*range(20), *range(27, 60)), HOUR)
    assert sum(each.share for each in drawn.stretches) == pytest.approx(100, abs=0.01)
    assert [(each.offset, each.seconds) for each in drawn.gaps] == [(33.333, 420)]
