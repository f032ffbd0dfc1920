"""Times and their texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandyard.kit.clock import ms_from_rfc3339, now_ms, rfc3339_from_ms
from tests.support.clocks import ManualClock

YEAR_2000_MS, YEAR_2100_MS = 946_684_800_000, 4_102_444_800_000


@given(st.integers(YEAR_2000_MS // 1000, YEAR_2100_MS // 1000))
def test_a_whole_second_survives_its_text(second: int) -> None:
    assert ms_from_rfc3339(rfc3339_from_ms(second * 1000)) == second * 1000


@given(st.integers(YEAR_2000_MS, YEAR_2100_MS), st.integers(YEAR_2000_MS, YEAR_2100_MS))
def test_texts_sort_as_their_seconds_do(one_ms: int, other_ms: int) -> None:
    in_texts = rfc3339_from_ms(one_ms) < rfc3339_from_ms(other_ms)
    assert in_texts == (one_ms // 1000 < other_ms // 1000)


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (1_800_000_000_000, "2027-01-15T08:00:00Z"),
        (1_800_000_000_999, "2027-01-15T08:00:00Z"),
        (1_799_999_999_999, "2027-01-15T07:59:59Z"),
    ],
)
def test_a_text_is_never_later(at_ms: int, text: str) -> None:
    assert rfc3339_from_ms(at_ms) == text


def test_the_time_in_milliseconds_is_whole() -> None:
    assert now_ms(ManualClock(1_800_000_000.9996)) == 1_800_000_000_999
