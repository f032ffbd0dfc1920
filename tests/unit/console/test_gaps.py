"""Missing readings are drawn as a strip over the range."""

import pytest

from sandyard.console.screens.devices import Strip, strip

HOUR_MS = 3_600_000


def drawn(*gaps: tuple[int, int], known_from: int = 0) -> Strip:
    """Of an hour with gaps between these seconds."""
    found = [{"from_ms": begin * 1000, "to_ms": end * 1000} for begin, end in gaps]
    return strip("temperature", {"from_ms": known_from * 1000, "gaps": found}, 0, HOUR_MS)


def stretches(of: Strip) -> list[tuple[str, float, float]]:
    return [(each.kind, each.begins_at, each.ends_at) for each in of.stretches]


def test_a_device_that_never_stopped_has_one_stretch() -> None:
    assert stretches(drawn()) == [("readings", 0, 3600)]


def test_a_gap_lies_between_readings() -> None:
    assert stretches(drawn((1200, 1620))) == [
        ("readings", 0, 1200),
        ("gap", 1200, 1620),
        ("readings", 1620, 3600),
    ]


def test_silence_at_either_end_is_a_gap() -> None:
    assert stretches(drawn((0, 600), (3000, 3600))) == [
        ("gap", 0, 600),
        ("readings", 600, 3000),
        ("gap", 3000, 3600),
    ]
    assert stretches(drawn((0, 3600))) == [("gap", 0, 3600)]


def test_nothing_is_missing_before_a_device_was_known() -> None:
    assert stretches(drawn(known_from=1800)) == [("before", 0, 1800), ("readings", 1800, 3600)]
    assert stretches(drawn(known_from=9000)) == [("before", 0, 3600)]


def test_shares_fill_the_strip_and_gaps_are_named() -> None:
    one = drawn((1200, 1620))
    assert sum(each.share for each in one.stretches) == pytest.approx(100, abs=0.01)
    assert [(each.offset, each.seconds) for each in one.gaps] == [(33.333, 420)]
