"""Changes to the pool from the provider: from its list, and from deletions there. No I/O."""

from dataclasses import dataclass, replace

from sandyard.broker.pool import model
from sandyard.kit import ids
from sandyard.kit.changes.transitions import Cause, Transition, changed, created, replaced


def loses_too_many(missing: int, *, of: int) -> bool:
    """More than half of the free sandboxes and more than five: the list is probably broken."""
    return missing > 5 and missing * 2 > of


def is_confirmed(row: model.Sandbox, listed: model.Listed | None) -> bool:
    return listed is not None and row.status in model.UNUSED


def decide_discovery(
    listed: model.Listed, *, lab_duration_hours: float, cause: Cause
) -> Transition[model.Sandbox]:
    """The sandbox joins the pool. Its id may have been in the pool before, so its sequence starts
    at the current time."""
    now = model.seconds_of(cause)
    found = model.Sandbox(
        sandbox_id=ids.sandbox_id(listed.external_id),
        name=listed.name,
        external_id=listed.external_id,
        status=model.Status.AVAILABLE,
        lab_duration_hours=lab_duration_hours,
        created_at=now,
        updated_at=now,
        last_synced=now,
    )
    return created(found, "sandbox.discovered", cause, first=now)


def decide_listing(
    row: model.Sandbox, listed: model.Listed | None, *, cause: Cause
) -> Transition[model.Sandbox] | None:
    """Changes from the provider's list: a free sandbox is missing, a missing one is back, or one
    that was never leased has a new name. A leased sandbox does not change, and a reserved one keeps
    the name that matched its ticket's prefix."""
    now = model.seconds_of(cause)
    if listed is None:
        if row.status not in model.FREE:
            return None
        after = row.made_stale(model.StaleReason.MISSING, now)
        return changed(row, after, "sandbox.missing", cause)
    if row.status not in model.UNUSED or row.allocated_at:
        return None
    if row.stale_reason is model.StaleReason.MISSING:
        after = row.made_available(now).listed_as(listed.name, now)
        reason = cause.because("the provider lists it again")
        return changed(row, after, "sandbox.restored", reason)
    if row.name == listed.name or row.status is model.Status.RESERVED:
        return None
    return changed(row, row.listed_as(listed.name, now), "sandbox.renamed", cause)


@dataclass(frozen=True, slots=True)
class DeletionPolicy:
    max_attempts: int
    backoff_base_sec: float
    backoff_max_sec: float


def is_deletion_due(row: model.Sandbox, now: int) -> bool:
    if row.status is not model.Status.PENDING_DELETION:
        return False
    return row.next_attempt_at is None or row.next_attempt_at <= now


def decide_failed_deletion(
    row: model.Sandbox, policy: DeletionPolicy, *, jitter: float, cause: Cause
) -> Transition[model.Sandbox]:
    """Retry after twice the last delay, less a random part of up to half of it; or fail for
    good."""
    now, count = model.seconds_of(cause), row.deletion_retry_count + 1
    failed = replace(row, deletion_retry_count=count, updated_at=now)
    if count >= policy.max_attempts:
        after = replace(failed, status=model.Status.DELETION_FAILED, next_attempt_at=None)
        return changed(row, after, "deletion.failed", cause)
    longest = min(policy.backoff_base_sec * 2 ** (count - 1), policy.backoff_max_sec)
    wait = max(1, round(longest * (1 - jitter / 2)))
    return changed(row, replace(failed, next_attempt_at=now + wait), "deletion.retried", cause)


def decide_deleted(row: model.Sandbox, cause: Cause) -> Transition[model.Sandbox | model.Tombstone]:
    """The provider has deleted it: a tombstone takes its place."""
    return replaced(row, model.Tombstone.of(row, model.seconds_of(cause)), "sandbox.deleted", cause)
