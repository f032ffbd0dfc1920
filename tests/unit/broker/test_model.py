"""The Broker's pure decisions at their exact edges."""

import pytest

from sandyard.broker.model import (
    DeletionPolicy,
    Lease,
    Listed,
    Sandbox,
    Status,
    decide_failed_deletion,
    is_overdue,
    lab_seconds,
    loses_too_many,
)
from sandyard.kit import ids
from sandyard.kit.transitions import Cause

NOW = 1_000_000
CAUSE = Cause("operator", NOW * 1000 + 7)


def pending(retries: int = 0) -> Sandbox:
    return Sandbox("id", "name", "ext", Status.PENDING_DELETION, 4, NOW, NOW, NOW, retries)


def test_a_lease_is_live_before_its_end_and_not_at_it() -> None:
    lease = Lease("id", "name", "ext", NOW, NOW + 10)
    assert lease.is_live(NOW + 9)
    assert not lease.is_live(NOW + 10)


@pytest.mark.parametrize(("hours", "seconds"), [(4, 14400), (0.5, 1800), (0.0001, 0), (1.5, 5400)])
def test_hours_take_decimals(hours: float, seconds: int) -> None:
    assert lab_seconds(hours) == seconds


def test_a_sandbox_is_overdue_at_the_instant_its_grace_ends() -> None:
    sandbox = Sandbox("id", "name", "ext", Status.ALLOCATED, 1, NOW, NOW, NOW)
    end = NOW + 3600
    assert not is_overdue(sandbox, grace_sec=60, now=end + 59)
    assert is_overdue(sandbox, grace_sec=60, now=end + 60)


def test_a_free_sandbox_is_never_overdue() -> None:
    sandbox = Sandbox.discovered(Listed("e", "n"), lab_duration_hours=1, now=NOW)
    assert sandbox.expires_at is None
    assert not is_overdue(sandbox, grace_sec=0, now=NOW * 10)


@pytest.mark.parametrize(
    ("missing", "of", "too_many"),
    [(5, 5, False), (6, 6, True), (6, 12, False), (7, 12, True), (0, 0, False), (100, 199, True)],
)
def test_more_than_half_and_more_than_five_is_too_many(
    missing: int, of: int, too_many: bool
) -> None:
    assert loses_too_many(missing, of=of) is too_many


def test_waits_double_up_to_the_longest_and_jitter_shortens_them() -> None:
    policy = DeletionPolicy(max_attempts=9, backoff_base_sec=300, backoff_max_sec=3600)
    waits = []
    row = pending()
    for _ in range(6):
        row = decide_failed_deletion(row, policy, jitter=0, cause=CAUSE).result
        assert row.next_attempt_at is not None
        waits.append(row.next_attempt_at - NOW)
    assert waits == [300, 600, 1200, 2400, 3600, 3600]
    jittered = decide_failed_deletion(pending(), policy, jitter=1, cause=CAUSE).result
    assert jittered.next_attempt_at == NOW + 150


def test_the_last_failed_attempt_ends_the_trying() -> None:
    policy = DeletionPolicy(max_attempts=3, backoff_base_sec=1, backoff_max_sec=1)
    assert decide_failed_deletion(pending(1), policy, jitter=0, cause=CAUSE).result.status is (
        Status.PENDING_DELETION
    )
    ended = decide_failed_deletion(pending(2), policy, jitter=0, cause=CAUSE).result
    assert ended.status is Status.DELETION_FAILED
    assert ended.deletion_retry_count == 3
    assert ended.next_attempt_at is None


def test_the_same_external_id_always_gives_the_same_sandbox_id() -> None:
    assert ids.sandbox_id("ext-1") == ids.sandbox_id("ext-1")
    assert ids.sandbox_id("ext-1") != ids.sandbox_id("ext-2")
    assert ids.sandbox_id("ext-1")[14] == "5", "a UUID of version 5"
