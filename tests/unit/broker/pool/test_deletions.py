"""Deletions at the provider: when they are due, and what their outcome changes."""

from dataclasses import replace

import pytest

from sandyard.broker.pool.model import Sandbox, Status
from sandyard.broker.pool.provider_model import (
    DeletionPolicy,
    decide_deleted,
    decide_failed_deletion,
    is_deletion_due,
)
from sandyard.kit.changes.events import Effect
from sandyard.kit.changes.transitions import Cause, state_of
from tests.unit.broker.rows import FREE, NOW, PENDING, cause, told

CAUSE = Cause("operator", NOW * 1000 + 7)


def pending(retries: int = 0) -> Sandbox:
    return Sandbox("id", "name", "ext", Status.PENDING_DELETION, 4, NOW, NOW, NOW, retries)


@pytest.mark.parametrize(("at", "is_due"), [(None, True), (NOW, True), (NOW + 1, False)])
def test_a_deletion_is_due_at_the_time_of_its_next_attempt(at: int | None, is_due: bool) -> None:
    assert is_deletion_due(replace(PENDING, next_attempt_at=at), NOW) is is_due
    assert not is_deletion_due(FREE, NOW)


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


def test_a_failed_deletion_tells_what_the_provider_said() -> None:
    policy = DeletionPolicy(max_attempts=2, backoff_base_sec=60, backoff_max_sec=60)
    why = cause().because("status 500")
    first = decide_failed_deletion(PENDING, policy, jitter=0, cause=why)
    assert told(first) == ("deletion.retried", "operator", "status 500")
    last = decide_failed_deletion(first.result, policy, jitter=0, cause=why)
    assert told(last) == ("deletion.failed", "operator", "status 500")


def test_a_deleted_sandbox_is_told_as_its_tombstone() -> None:
    gone = decide_deleted(PENDING, cause(NOW + 3))
    [event] = gone.events
    assert gone.after is not None
    assert (event.kind, event.effect) == ("sandbox.deleted", Effect.FULL)
    assert event.data == state_of(gone.after)
    assert "kept_until" not in event.data
    assert gone.after.sequence == PENDING.sequence + 1
