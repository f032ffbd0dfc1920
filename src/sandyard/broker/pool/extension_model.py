"""Longer leases: how much time a track may add, and when. No I/O."""

from dataclasses import dataclass, replace

from sandyard.broker.pool.errors import (
    AllocationExpiredError,
    InvalidLabMinutesError,
    LeaseTooLongError,
    TransitionNotAllowedError,
)
from sandyard.broker.pool.model import Sandbox, Status, Tombstone, owned_by, seconds_of
from sandyard.kit.changes.transitions import Cause, Transition, changed

_KEYS = 10
"""How many keys are remembered; retries come soon."""


@dataclass(frozen=True, slots=True)
class Extension:
    """A track's request for more time; `key` distinguishes a retry from a second request."""

    track_id: str
    minutes: int
    key: str | None = None


def lease_seconds(minutes: int, *, longest_sec: int) -> int:
    """The length of the lease that a track requests."""
    if minutes * 60 > longest_sec:
        raise InvalidLabMinutesError(details={"longest_minutes": longest_sec // 60})
    return minutes * 60


def decide_extension(
    row: Sandbox | Tombstone | None, asked: Extension, *, longest_sec: int, cause: Cause
) -> Transition[Sandbox] | None:
    """A later end for the lease, within its maximum length; None if this request was already
    applied."""
    sandbox = owned_by(row, asked.track_id)
    if sandbox.status is not Status.ALLOCATED:
        raise TransitionNotAllowedError("extend", sandbox.status, [Status.ALLOCATED])
    keys = (sandbox.extension_keys or "").split()
    if asked.key in keys:
        return None
    lease, now = sandbox.lease, seconds_of(cause)
    if not lease.is_live(now):
        raise AllocationExpiredError
    end = lease.expires_at + asked.minutes * 60
    if end - lease.allocated_at > longest_sec:
        left = lease.allocated_at + longest_sec - lease.expires_at
        raise LeaseTooLongError(possible_minutes=max(0, left // 60))
    remembered = " ".join([*keys, *([asked.key] if asked.key else [])][-_KEYS:]) or None
    after = replace(sandbox, ends_at=end, extension_keys=remembered, updated_at=now)
    return changed(sandbox, after, "lease.extended", cause)
