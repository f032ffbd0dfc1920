"""Changing many sandboxes at once: which ones, and how each changes. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass

from sandyard.broker.pool.action_model import Action, decide_action
from sandyard.broker.pool.model import Sandbox, StaleReason, Status
from sandyard.kit.changes.transitions import Cause, Transition

BULK_DELETE = "bulk-delete by an operator"
AUTO_DELETE_STALE = "auto-delete-stale by an operator"
STALE_GRACE_HOURS = 24.0

BULK_ACTIONS: Mapping[Status, Action] = {
    Status.ALLOCATED: Action.RELEASE,
    Status.STALE: Action.RELEASE,
    Status.DELETION_FAILED: Action.RETRY_DELETION,
}
"""The operator action that deletes one sandbox in this state."""


@dataclass(frozen=True, slots=True)
class BulkFilter:
    """Which sandboxes to change; all given conditions must match."""

    status: Status
    name_prefix: str = ""
    track: str | None = None
    unchanged_since: int | None = None
    """Only rows that have not changed after this time."""
    stale_reason: StaleReason | None = None
    names: frozenset[str] | None = None
    """Only these."""

    def matches(self, row: Sandbox) -> bool:
        return (
            row.status is self.status
            and (self.unchanged_since is None or row.updated_at <= self.unchanged_since)
            and self.stale_reason in (None, row.stale_reason)
            and (self.names is None or row.name in self.names)
        )

    @property
    def prefixes(self) -> list[str]:
        """The name prefixes to list."""
        if self.names is None:
            return [self.name_prefix]
        return sorted(each for each in self.names if each.startswith(self.name_prefix))


def decide_bulk_delete(row: Sandbox, cause: Cause) -> Transition[Sandbox]:
    """The same change and event as an operator's action on one sandbox."""
    return decide_action(row, BULK_ACTIONS[row.status], cause)
