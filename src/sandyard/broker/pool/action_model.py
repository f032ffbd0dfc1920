"""What an operator may do to a sandbox, and the result. No I/O."""

from collections.abc import Collection, Mapping
from enum import StrEnum

from sandyard.broker.pool.errors import (
    AlreadyLeasedError,
    SandboxNotFoundError,
    TransitionNotAllowedError,
)
from sandyard.broker.pool.model import FREE, Sandbox, StaleReason, Status, end_lease, seconds_of
from sandyard.kit.changes.transitions import Cause, Transition, changed

RELEASED = "released by an operator"


class Action(StrEnum):
    """What an operator may do to a sandbox in some states, in the order in which to offer it."""

    QUARANTINE = "quarantine"
    RESTORE = "restore"
    RELEASE = "release"
    RETRY_DELETION = "retry-deletion"


HOLD = "hold"
"""What an operator may do to a sandbox in any state."""

_ALLOWED_FROM: Mapping[Action, Collection[Status]] = {
    Action.QUARANTINE: FREE,
    Action.RESTORE: (Status.STALE, Status.HELD),
    Action.RELEASE: (Status.ALLOCATED, Status.STALE, Status.HELD),
    Action.RETRY_DELETION: (Status.DELETION_FAILED,),
}


def allowed_actions(row: Sandbox) -> list[str]:
    """What an operator may do to it now, in the order in which to offer it."""
    allowed = [each for each in Action if row.status in _ALLOWED_FROM[each]]
    if row.allocated_at and Action.RESTORE in allowed:
        allowed.remove(Action.RESTORE)  # a sandbox is never leased twice
    return [*allowed, HOLD]


def decide_action(row: Sandbox | None, action: Action, cause: Cause) -> Transition[Sandbox]:
    if row is None:
        raise SandboxNotFoundError
    if row.status not in _ALLOWED_FROM[action]:
        raise TransitionNotAllowedError(action, row.status, _ALLOWED_FROM[action])
    now = seconds_of(cause)
    match action:
        case Action.QUARANTINE:
            after = row.made_stale(StaleReason.QUARANTINED, now, why=cause.reason)
            return changed(row, after, "sandbox.quarantined", cause)
        case Action.RESTORE if row.allocated_at:
            raise AlreadyLeasedError
        case Action.RESTORE:
            return changed(row, row.made_available(now), "sandbox.restored", cause)
        case Action.RELEASE if row.status is Status.ALLOCATED:
            return end_lease(row, cause.because(cause.reason or RELEASED))
        case Action.RELEASE | Action.RETRY_DELETION:
            usual = RELEASED if action is Action.RELEASE else "retried by an operator"
            after, why = row.sent_to_deletion(now), cause.because(cause.reason or usual)
            return changed(row, after, "deletion.requested", why)
