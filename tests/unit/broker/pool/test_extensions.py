"""Longer leases at their exact edges."""

from dataclasses import replace

import pytest

from sandyard.broker.pool.errors import (
    AllocationExpiredError,
    InvalidLabMinutesError,
    LeaseTooLongError,
    NotSandboxOwnerError,
    TransitionNotAllowedError,
)
from sandyard.broker.pool.lease_model import Extension, decide_extension, lease_seconds
from sandyard.broker.pool.model import Sandbox
from sandyard.kit.changes.transitions import Transition
from tests.unit.broker.rows import HOUR, LEASED, NOW, PENDING, cause, told

LONGEST = 2 * HOUR


def extend(
    row: Sandbox = LEASED,
    minutes: int = 30,
    *,
    key: str | None = None,
    track: str = "t",
    now: int = NOW,
) -> Transition[Sandbox] | None:
    asked = Extension(track, minutes, key)
    return decide_extension(row, asked, longest_sec=LONGEST, cause=cause(now, "track:t"))


def test_the_end_moves_and_that_is_told() -> None:
    moved = extend(key="first")
    assert moved is not None
    assert told(moved) == ("lease.extended", "track:t", None)
    assert moved.events[0].data == {"ends_at": NOW + 90 * 60, "extension_keys": "first"}
    assert moved.result.lease == replace(LEASED.lease, expires_at=NOW + 90 * 60)


def test_one_key_extends_once_and_calls_without_one_each_time() -> None:
    moved = extend(key="first")
    assert moved is not None
    assert extend(moved.result, key="first") is None
    assert extend(moved.result, key="first", now=NOW + 9 * HOUR) is None, "a late retry"
    assert extend(moved.result, key="second") is not None
    unnamed = extend()
    assert unnamed is not None
    assert extend(unnamed.result) is not None


def test_the_last_ten_keys_are_remembered() -> None:
    row = LEASED
    for number in range(12):
        moved = extend(row, 1, key=f"k{number}")
        assert moved is not None
        row = moved.result
    assert extend(row, 1, key="k2") is None
    assert extend(row, 1, key="k1") is not None


def test_it_ends_at_the_bound_and_not_past_it() -> None:
    most = extend(minutes=60)
    assert most is not None
    with pytest.raises(LeaseTooLongError) as refused:
        extend(minutes=61)
    assert refused.value.details == {"possible_minutes": 60}
    with pytest.raises(LeaseTooLongError) as refused:
        extend(most.result, 1)
    assert refused.value.details == {"possible_minutes": 0}


def test_a_lease_that_is_longer_by_its_lab_stays_and_gets_no_more() -> None:
    with pytest.raises(LeaseTooLongError) as refused:
        extend(replace(LEASED, ends_at=NOW + 9 * HOUR), 1)
    assert refused.value.details == {"possible_minutes": 0}


def test_only_its_track_may_and_only_while_it_is_live() -> None:
    assert extend(now=NOW + HOUR - 1) is not None
    with pytest.raises(AllocationExpiredError):
        extend(now=NOW + HOUR)
    with pytest.raises(NotSandboxOwnerError):
        extend(track="other")
    with pytest.raises(TransitionNotAllowedError, match="Cannot extend a sandbox that is pending"):
        extend(PENDING)


def test_a_lease_is_asked_for_in_minutes_up_to_the_bound() -> None:
    assert lease_seconds(120, longest_sec=LONGEST) == LONGEST
    with pytest.raises(InvalidLabMinutesError) as refused:
        lease_seconds(121, longest_sec=LONGEST)
    assert refused.value.details == {"longest_minutes": 120}
