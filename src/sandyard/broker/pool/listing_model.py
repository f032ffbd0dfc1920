"""Changes to the pool from the provider's list. No I/O."""

from sandyard.broker.pool.model import (
    FREE,
    UNUSED,
    Listed,
    Sandbox,
    StaleReason,
    Status,
    seconds_of,
)
from sandyard.kit import ids
from sandyard.kit.changes.transitions import Cause, Transition, changed, created


def loses_too_many(missing: int, *, of: int) -> bool:
    """More than half of the free sandboxes and more than five: the list is probably broken."""
    return missing > 5 and missing * 2 > of


def is_confirmed(row: Sandbox, listed: Listed | None) -> bool:
    """Whether the list confirms that an unused sandbox still exists."""
    return listed is not None and row.status in UNUSED


def decide_discovery(
    listed: Listed, *, lab_duration_hours: float, cause: Cause
) -> Transition[Sandbox]:
    """The sandbox joins the pool. Its id may have been in the pool before, so its sequence starts
    at the current time."""
    now = seconds_of(cause)
    found = Sandbox(
        sandbox_id=ids.sandbox_id(listed.external_id),
        name=listed.name,
        external_id=listed.external_id,
        status=Status.AVAILABLE,
        lab_duration_hours=lab_duration_hours,
        created_at=now,
        updated_at=now,
        last_synced=now,
    )
    return created(found, "sandbox.discovered", cause, first=now)


def decide_listing(
    row: Sandbox, listed: Listed | None, *, cause: Cause
) -> Transition[Sandbox] | None:
    """Changes from the provider's list: a free sandbox is missing, a missing one is back, or one
    that was never leased has a new name. A leased sandbox does not change, and a reserved one keeps
    the name that matched its ticket's prefix."""
    now = seconds_of(cause)
    if listed is None:
        if row.status not in FREE:
            return None
        after = row.made_stale(StaleReason.MISSING, now)
        return changed(row, after, "sandbox.missing", cause)
    if row.status not in UNUSED or row.allocated_at:
        return None
    if row.stale_reason is StaleReason.MISSING:
        after = row.made_available(now).listed_as(listed.name, now)
        reason = cause.because("the provider lists it again")
        return changed(row, after, "sandbox.restored", reason)
    if row.name == listed.name or row.status is Status.RESERVED:
        return None
    return changed(row, row.listed_as(listed.name, now), "sandbox.renamed", cause)
