"""The account of a whole request, and times at their edges."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandyard.telemetry.model import (
    EARLIEST_MS,
    LATEST_MS,
    IntakeReport,
    Reading,
    RejectionCode,
    Retention,
    Stored,
    TimeRange,
    account_for,
    find_gaps,
    first_of_each_id,
    hash_api_key,
    whole_second,
)
from tests.support.telemetry.engines import BOOT_ID, NOW_MS, reading


def sequentially(before: dict[str, int], sent: list[tuple[str, int]]) -> list[str]:
    """What becomes of each reading if they come one by one."""
    there = dict(before)
    outcomes = []
    for batch_id, content in sent:
        if batch_id not in there:
            there[batch_id] = content
            outcomes.append("acknowledged")
        else:
            outcomes.append("duplicate" if there[batch_id] == content else "conflict")
    return outcomes


def of_content(batch_id: str, content: int) -> Reading:
    return reading(batch_id=batch_id, sensors={"t": content})


IDS, CONTENTS = st.sampled_from("abcd"), st.integers(0, 2)


class TestAccount:
    @given(
        st.dictionaries(IDS, CONTENTS, max_size=4),
        st.lists(st.tuples(IDS, CONTENTS), max_size=12),
    )
    def test_a_batch_is_accounted_for_like_single_readings(
        self, before: dict[str, int], sent: list[tuple[str, int]]
    ) -> None:
        # Other readings of the request were refused before, so the places have gaps.
        entries = [(3 * n + 1, of_content(*each)) for n, each in enumerate(sent)]
        claims = first_of_each_id(each for _, each in entries)
        assert len({each.batch_id for each in claims}) == len(claims)
        kept = {
            each.batch_id: Stored(
                of_content(each.batch_id, before[each.batch_id]).content_hash, is_new=False
            )
            if each.batch_id in before
            else Stored(each.content_hash, is_new=True)
            for each in claims
        }
        report = IntakeReport()
        account_for(entries, kept, report)
        expected: dict[str, list[int]] = {"acknowledged": [], "duplicate": [], "conflict": []}
        for place, outcome in enumerate(sequentially(before, sent)):
            expected[outcome].append(place)
        assert report.acknowledged == [sent[place][0] for place in expected["acknowledged"]]
        assert report.duplicates == [sent[place][0] for place in expected["duplicate"]]
        assert [(each.index, each.batch_id) for each in report.rejected] == [
            (3 * place + 1, sent[place][0]) for place in expected["conflict"]
        ]
        assert {each.code for each in report.rejected} <= {RejectionCode.BATCH_ID_CONFLICT}

    def test_a_claim_that_another_caller_won_is_a_conflict(self) -> None:
        mine, theirs = of_content("a", 1), of_content("a", 2)
        report = IntakeReport()
        kept = {"a": Stored(theirs.content_hash, is_new=False)}
        account_for([(0, mine), (1, theirs)], kept, report)
        assert (report.acknowledged, report.duplicates) == ([], ["a"])
        assert [each.index for each in report.rejected] == [0]


class TestRetention:
    def test_a_reading_lives_until_its_window_is_over(self) -> None:
        retention = Retention(100_000)
        assert retention.oldest_ms(NOW_MS) == NOW_MS - 100_000 + 1
        assert retention.oldest_ms(NOW_MS + 1) - retention.oldest_ms(NOW_MS) == 1

    @given(st.integers(EARLIEST_MS, LATEST_MS - 1), st.integers(1, 10**12))
    def test_a_reading_that_expires_now_is_not_shown(self, at_ms: int, duration_ms: int) -> None:
        retention = Retention(duration_ms)
        end = retention.expires_at(at_ms)
        assert retention.oldest_ms(end - 1) == at_ms
        assert retention.oldest_ms(end) == at_ms + 1


@pytest.mark.parametrize(
    ("at_ms", "second_ms"),
    [(NOW_MS - 1, NOW_MS - 1000), (NOW_MS, NOW_MS), (NOW_MS + 999, NOW_MS)],
)
def test_a_whole_second_is_never_later(at_ms: int, second_ms: int) -> None:
    assert whole_second(at_ms) == second_ms


@pytest.mark.parametrize(("oldest_ms", "from_ms"), [(9, 10), (10, 10), (11, 11), (21, 21)])
def test_a_range_begins_no_earlier_than_the_oldest(oldest_ms: int, from_ms: int) -> None:
    assert TimeRange(10, 20).since(oldest_ms) == TimeRange(from_ms, 20)


def test_content_is_what_was_measured_and_neither_its_id_nor_a_name() -> None:
    one = reading(1)
    same = replace(one, batch_id="another", friendly_name="greenhouse")
    assert same.content_hash == one.content_hash
    changes: tuple[dict[str, Any], ...] = (
        {"hardware_id": "00:11:22:33:44:55"},
        {"timestamp_ms": one.timestamp_ms + 1},
        {"boot_id": BOOT_ID.upper()},
        {"firmware_version": one.firmware_version + "1"},
        {"sensors": {}},
        {"sensor_status": {}},
    )
    for changed in changes:
        assert replace(one, **changed).content_hash != one.content_hash, changed


def test_a_key_is_hashed_with_the_pepper() -> None:
    hashed = hash_api_key("pepper", "key")
    assert hashed == sha256(b"pepperkey").hexdigest()
    assert hashed != hash_api_key("", "key")


MINUTE = 60_000
HOUR = TimeRange(0, 60 * MINUTE)


def minutes(*numbers: int) -> list[int]:
    return [number * MINUTE for number in numbers]


def gaps_between(times: list[int], within: TimeRange = HOUR) -> list[tuple[int, int]]:
    """In minutes."""
    found = find_gaps(times, within).gaps
    return [(each.from_ms // MINUTE, each.to_ms // MINUTE) for each in found]


class TestGaps:
    def test_a_device_that_never_stopped_has_no_gap(self) -> None:
        assert gaps_between(minutes(*range(61))) == []

    def test_a_gap_is_from_the_last_reading_to_the_next(self) -> None:
        assert gaps_between(minutes(*range(20), *range(27, 60))) == [(19, 27)]

    def test_silence_at_either_end_is_a_gap(self) -> None:
        assert gaps_between(minutes(*range(10, 50))) == [(0, 10), (49, 60)]
        assert gaps_between([]) == [(0, 60)]

    def test_the_current_interval_is_not_a_gap(self) -> None:
        assert gaps_between([*minutes(*range(59)), 58 * MINUTE + 1]) == []

    def test_a_device_that_sends_rarely_misses_nothing_in_between(self) -> None:
        assert gaps_between(minutes(*range(0, 60, 5))) == []
        assert gaps_between(minutes(*range(0, 20, 5), *range(40, 60, 5))) == [(15, 40)]

    def test_without_a_usual_interval_an_hour_of_silence_is_a_gap(self) -> None:
        assert gaps_between(minutes(30)) == []
        assert gaps_between(minutes(30), TimeRange(0, 90 * MINUTE)) == [(30, 90)]
        assert find_gaps(minutes(30), HOUR).usual_interval_ms is None

    def test_nothing_is_missing_before_the_range(self) -> None:
        assert gaps_between([], TimeRange(100 * MINUTE, 60 * MINUTE)) == []
