"""Sandboxes held for inspection, and the replacement of a broken one. No I/O."""

from dataclasses import dataclass, replace

from sandyard.broker.pool.errors import (
    AllocationExpiredError,
    SandboxNotFoundError,
    TransitionNotAllowedError,
)
from sandyard.broker.pool.model import Sandbox, Status, Tombstone, owned_by, seconds_of
from sandyard.kit.changes.transitions import Cause, Transition, changed


@dataclass(frozen=True, slots=True)
class Replacement:
    """A track's request to replace its sandbox."""

    track_id: str
    reason: str
    name_prefix: str = ""
    client: str | None = None
    unless_probed: bool = False
    """Do not replace a sandbox that has passed its probe meanwhile."""


def decide_hold(row: Sandbox | None, until: int, cause: Cause) -> Transition[Sandbox]:
    """Hold the sandbox, whatever its state: its lease ends, its deletion waits. A repeat changes
    the time."""
    if row is None:
        raise SandboxNotFoundError
    return changed(row, _held(row, until, cause), "sandbox.held", cause)


def _held(row: Sandbox, until: int, cause: Cause) -> Sandbox:
    return replace(
        row,
        status=Status.HELD,
        status_reason=cause.reason,
        held_until=until,
        hold_reminded_at=None,
        stale_reason=None,
        reserved_for=None,
        reservation_id=None if row.status is Status.RESERVED else row.reservation_id,
        next_attempt_at=None,
        updated_at=seconds_of(cause),
    )


def decide_reminder(row: Sandbox, cause: Cause) -> Transition[Sandbox] | None:
    """Report an overdue hold; None if it is not overdue, or was reported before."""
    now = seconds_of(cause)
    if row.status is not Status.HELD or row.held_until is None or row.held_until > now:
        return None
    if row.hold_reminded_at is not None:
        return None
    after = replace(row, hold_reminded_at=now)
    return changed(row, after, "sandbox.hold_overdue", cause.because(row.status_reason))


def replaceable(row: Sandbox | Tombstone | None, track_id: str, now: int) -> Sandbox:
    """The track's sandbox, if it may be replaced or has been replaced before."""
    sandbox = owned_by(row, track_id)
    if sandbox.replaced_by is not None:
        return sandbox
    if sandbox.status is not Status.ALLOCATED:
        raise TransitionNotAllowedError("replace", sandbox.status, [Status.ALLOCATED])
    if not sandbox.lease.is_live(now):
        raise AllocationExpiredError
    return sandbox


def decide_replacement(
    old: Sandbox, free: Sandbox, *, held_until: int, cause: Cause, is_probed: bool = False
) -> tuple[Transition[Sandbox], Transition[Sandbox]]:
    """Move the lease, with its start and end, to a free sandbox, so that its limits still apply,
    and hold the old one. It counts for the same reservation, unless the free one was reserved for
    one."""
    held = replace(_held(old, held_until, cause), replaced_by=free.sandbox_id)
    leased = replace(
        free,
        status=Status.ALLOCATED,
        allocated_to_track=old.allocated_to_track,
        idempotency_key=old.idempotency_key,
        track_name=old.track_name,
        allocated_at=old.allocated_at,
        ends_at=old.lease.expires_at,
        extension_keys=old.extension_keys,
        reserved_for=None,
        reservation_id=free.reservation_id or old.reservation_id,
        probed_at=seconds_of(cause) if is_probed else None,
        updated_at=seconds_of(cause),
    )
    instead = cause.because(f"replaces {old.sandbox_id}")
    return (
        changed(old, held, "lease.replaced", cause),
        changed(free, leased, "lease.created", instead),
    )
