"""Deletions at the provider: when they are due, and the result of each outcome. No I/O."""

from dataclasses import dataclass, replace

from sandyard.broker.pool.model import Sandbox, Status, Tombstone, seconds_of
from sandyard.kit.changes.transitions import Cause, Transition, changed, replaced


@dataclass(frozen=True, slots=True)
class DeletionPolicy:
    max_attempts: int
    backoff_base_sec: float
    backoff_max_sec: float


def is_deletion_due(row: Sandbox, now: int) -> bool:
    if row.status is not Status.PENDING_DELETION:
        return False
    return row.next_attempt_at is None or row.next_attempt_at <= now


def decide_failed_deletion(
    row: Sandbox, policy: DeletionPolicy, *, jitter: float, cause: Cause
) -> Transition[Sandbox]:
    """Retry after twice the last delay, less a random part of up to half of it; or fail for
    good."""
    now, count = seconds_of(cause), row.deletion_retry_count + 1
    failed = replace(row, deletion_retry_count=count, updated_at=now)
    if count >= policy.max_attempts:
        after = replace(failed, status=Status.DELETION_FAILED, next_attempt_at=None)
        return changed(row, after, "deletion.failed", cause)
    longest = min(policy.backoff_base_sec * 2 ** (count - 1), policy.backoff_max_sec)
    wait = max(1, round(longest * (1 - jitter / 2)))
    return changed(row, replace(failed, next_attempt_at=now + wait), "deletion.retried", cause)


def decide_deleted(row: Sandbox, cause: Cause) -> Transition[Sandbox | Tombstone]:
    """The provider has deleted it: a tombstone takes its place."""
    return replaced(row, Tombstone.of(row, seconds_of(cause)), "sandbox.deleted", cause)
