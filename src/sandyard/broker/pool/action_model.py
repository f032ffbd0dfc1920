"""What an operator may do to one sandbox or to many, and the result. No I/O."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sandyard.broker.pool import model
from sandyard.broker.pool.errors import AlreadyLeasedError, TransitionNotAllowedError
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
OF_LEASE = ("extend", "replace")
"""What an operator may do to a leased sandbox for its track."""

_ALLOWED_FROM: Mapping[Action, Collection[model.Status]] = {
    Action.QUARANTINE: model.FREE,
    Action.RESTORE: (model.Status.STALE, model.Status.HELD),
    Action.RELEASE: (model.Status.ALLOCATED, model.Status.STALE, model.Status.HELD),
    Action.RETRY_DELETION: (model.Status.DELETION_FAILED,),
}


def allowed_actions(row: model.Sandbox) -> list[str]:
    """What an operator may do to it now, in the order in which to offer it."""
    allowed = [each for each in Action if row.status in _ALLOWED_FROM[each]]
    if row.allocated_at and Action.RESTORE in allowed:
        allowed.remove(Action.RESTORE)  # a sandbox is never leased twice
    return [*(OF_LEASE if row.status is model.Status.ALLOCATED else ()), *allowed, HOLD]


def leased_track(row: model.Sandbox, action: str) -> str:
    """The track that an operator acts for. Raises TransitionNotAllowedError if it has none."""
    if row.allocated_to_track is None:
        raise TransitionNotAllowedError(action, row.status, [model.Status.ALLOCATED])
    return row.allocated_to_track


def decide_action(
    row: model.Sandbox | model.Tombstone | None, action: Action, cause: Cause
) -> Transition[model.Sandbox]:
    row = model.existing(row)
    if row.status not in _ALLOWED_FROM[action]:
        raise TransitionNotAllowedError(action, row.status, _ALLOWED_FROM[action])
    now = model.seconds_of(cause)
    match action:
        case Action.QUARANTINE:
            after = row.made_stale(model.StaleReason.QUARANTINED, now, why=cause.reason)
            return changed(row, after, "sandbox.quarantined", cause)
        case Action.RESTORE if row.allocated_at:
            raise AlreadyLeasedError
        case Action.RESTORE:
            return changed(row, row.made_available(now), "sandbox.restored", cause)
        case Action.RELEASE if row.status is model.Status.ALLOCATED:
            return model.end_lease(row, cause.because(cause.reason or RELEASED))
        case Action.RELEASE | Action.RETRY_DELETION:
            usual = RELEASED if action is Action.RELEASE else "retried by an operator"
            after, why = row.sent_to_deletion(now), cause.because(cause.reason or usual)
            return changed(row, after, "deletion.requested", why)


BULK_DELETE = "bulk-delete by an operator"
BULK_RESTORE = "bulk-restore by an operator"
AUTO_DELETE_STALE = "auto-delete-stale by an operator"
STALE_GRACE_HOURS = 24.0

BULK_ACTIONS: Mapping[model.Status, Action] = {
    model.Status.ALLOCATED: Action.RELEASE,
    model.Status.STALE: Action.RELEASE,
    model.Status.DELETION_FAILED: Action.RETRY_DELETION,
}
"""The operator action that deletes one sandbox in this state."""


@dataclass(frozen=True, slots=True)
class BulkFilter:
    """Which sandboxes to change; all given conditions must match."""

    status: model.Status
    name_prefix: str = ""
    track: str | None = None
    unchanged_since: int | None = None
    """Only rows that have not changed after this time."""
    stale_reason: model.StaleReason | None = None
    names: frozenset[str] | None = None
    """Only these."""
    action: Action | None = None
    """Only rows that allow it."""

    def matches(self, row: model.Sandbox) -> bool:
        return (
            row.status is self.status
            and (self.action is None or self.action in allowed_actions(row))
            and (self.unchanged_since is None or row.updated_at <= self.unchanged_since)
            and self.stale_reason in (None, row.stale_reason)
            and (self.names is None or row.name in self.names)
        )

    @property
    def prefixes(self) -> list[str]:
        if self.names is None:
            return [self.name_prefix]
        return sorted(each for each in self.names if each.startswith(self.name_prefix))


def decide_bulk_delete(row: model.Sandbox, cause: Cause) -> Transition[model.Sandbox]:
    """The same change and event as an operator's action on one sandbox."""
    return decide_action(row, BULK_ACTIONS[row.status], cause)
