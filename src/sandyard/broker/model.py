"""The pool's vocabulary and rules: states, leases and every decision about them. No I/O.

A store applies these decisions atomically and never makes one of its own.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from sandyard.broker.errors import (
    AllocationExpiredError,
    NotSandboxOwnerError,
    SandboxNotFoundError,
    TransitionNotAllowedError,
)
from sandyard.kit import ids

TOMBSTONE_SECONDS = 7 * 24 * 3600


class Status(StrEnum):
    AVAILABLE = "available"
    ALLOCATED = "allocated"
    PENDING_DELETION = "pending_deletion"
    STALE = "stale"
    DELETION_FAILED = "deletion_failed"


class StaleReason(StrEnum):
    MISSING = "missing"
    QUARANTINED = "quarantined"


class Action(StrEnum):
    """What an operator may do to one sandbox."""

    QUARANTINE = "quarantine"
    RESTORE = "restore"
    RELEASE = "release"
    RETRY_DELETION = "retry-deletion"


_ALLOWED_FROM: Mapping[Action, Collection[Status]] = {
    Action.QUARANTINE: (Status.AVAILABLE,),
    Action.RESTORE: (Status.STALE,),
    Action.RELEASE: (Status.ALLOCATED, Status.STALE),
    Action.RETRY_DELETION: (Status.DELETION_FAILED,),
}


@dataclass(frozen=True, slots=True)
class Lease:
    """One track's right to one sandbox: everything that `allocate` answers."""

    sandbox_id: str
    name: str
    external_id: str
    allocated_at: int
    expires_at: int

    def is_live(self, now: int) -> bool:
        return now < self.expires_at


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease with whose it is."""

    track_id: str
    key: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class Claim:
    """A track's wish for a sandbox; `key` tells a retry from a second wish."""

    track_id: str
    key: str
    now: int
    name_prefix: str = ""
    track_name: str | None = None

    @property
    def lease_key(self) -> tuple[str, str]:
        return self.track_id, self.key


@dataclass(frozen=True, slots=True)
class Claimed:
    lease: Lease
    is_new: bool


@dataclass(frozen=True, slots=True)
class Sandbox:
    sandbox_id: str
    name: str
    external_id: str
    status: Status
    lab_duration_hours: float
    created_at: int
    updated_at: int
    allocated_at: int = 0
    deletion_retry_count: int = 0
    allocated_to_track: str | None = None
    idempotency_key: str | None = None
    track_name: str | None = None
    deletion_requested_at: int | None = None
    next_attempt_at: int | None = None
    last_synced: int | None = None
    stale_reason: StaleReason | None = None

    @classmethod
    def discovered(cls, listed: "Listed", *, lab_duration_hours: float, now: int) -> Self:
        """A sandbox that the provider has and the pool does not know yet."""
        return cls(
            sandbox_id=ids.sandbox_id(listed.external_id),
            name=listed.name,
            external_id=listed.external_id,
            status=Status.AVAILABLE,
            lab_duration_hours=lab_duration_hours,
            created_at=now,
            updated_at=now,
            last_synced=now,
        )

    @property
    def expires_at(self) -> int | None:
        """The end of its lab, by its own duration; None while nobody has it."""
        if not self.allocated_at:
            return None
        return self.allocated_at + lab_seconds(self.lab_duration_hours)

    def claimed_by(self, claim: Claim) -> Self:
        return replace(
            self,
            status=Status.ALLOCATED,
            allocated_to_track=claim.track_id,
            idempotency_key=claim.key,
            track_name=claim.track_name,
            allocated_at=claim.now,
            updated_at=claim.now,
        )

    def sent_to_deletion(self, now: int) -> Self:
        """Queued for deletion; the first request's time stays, however often it is repeated."""
        return replace(
            self,
            status=Status.PENDING_DELETION,
            stale_reason=None,
            deletion_requested_at=self.deletion_requested_at or now,
            deletion_retry_count=0,
            next_attempt_at=now,
            updated_at=now,
        )

    def made_stale(self, reason: StaleReason, now: int) -> Self:
        return replace(self, status=Status.STALE, stale_reason=reason, updated_at=now)

    def made_available(self, now: int) -> Self:
        return replace(self, status=Status.AVAILABLE, stale_reason=None, updated_at=now)

    def listed_again(self, now: int) -> Self:
        return replace(self.made_available(now), last_synced=now)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is kept of a removed sandbox, so that no late list brings it back."""

    sandbox_id: str
    external_id: str
    allocated_to_track: str | None
    deletion_requested_at: int | None
    deleted_at: int
    kept_until: int

    @classmethod
    def of(cls, sandbox: Sandbox, now: int) -> Self:
        return cls(
            sandbox_id=sandbox.sandbox_id,
            external_id=sandbox.external_id,
            allocated_to_track=sandbox.allocated_to_track,
            deletion_requested_at=sandbox.deletion_requested_at,
            deleted_at=now,
            kept_until=now + TOMBSTONE_SECONDS,
        )


@dataclass(frozen=True, slots=True)
class Change:
    """A decided change, applied only if the row still is what the decision was made from."""

    before: Sandbox
    after: Sandbox


GUARDED = (
    "status",
    "stale_reason",
    "allocated_to_track",
    "allocated_at",
    "deletion_requested_at",
    "deletion_retry_count",
)
"""The attributes that decisions rest on: a Change applies only while they equal `before`'s."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A sandbox as the provider lists it."""

    external_id: str
    name: str


@dataclass(frozen=True, slots=True)
class DeletionPolicy:
    max_attempts: int
    backoff_base_sec: float
    backoff_max_sec: float


def lab_seconds(hours: float) -> int:
    return round(hours * 3600)


def is_overdue(sandbox: Sandbox, *, grace_sec: int, now: int) -> bool:
    """An allocation whose lab and grace period are both over: its track has forgotten it."""
    end = sandbox.expires_at
    return sandbox.status is Status.ALLOCATED and end is not None and end + grace_sec <= now


def loses_too_many(missing: int, *, of: int) -> bool:
    """More than half of the free sandboxes and more than five: rather a broken list than a fact."""
    return missing > 5 and missing * 2 > of


def decide_mark(row: Sandbox | Tombstone | None, *, track_id: str, now: int) -> Change | None:
    """How the row changes when `track_id` gives it up; None when that was done before."""
    if isinstance(row, Tombstone):
        if not _owned_tombstone(row, track_id, now):
            raise SandboxNotFoundError
        return None
    sandbox = owned_by(row, track_id)
    if sandbox.status is not Status.ALLOCATED:
        return None
    if sandbox.expires_at is None or now >= sandbox.expires_at:
        raise AllocationExpiredError
    return Change(sandbox, sandbox.sent_to_deletion(now))


def owned_by(row: Sandbox | Tombstone | None, track_id: str) -> Sandbox:
    """The row, if `track_id` has it or had it last."""
    if row is None or isinstance(row, Tombstone):
        raise SandboxNotFoundError
    if row.allocated_to_track != track_id or row.status in (Status.AVAILABLE, Status.STALE):
        raise NotSandboxOwnerError
    return row


def decide_action(row: Sandbox | None, action: Action, *, now: int) -> Change:
    if row is None:
        raise SandboxNotFoundError
    if row.status not in _ALLOWED_FROM[action]:
        raise TransitionNotAllowedError(action, row.status, _ALLOWED_FROM[action])
    match action:
        case Action.QUARANTINE:
            return Change(row, row.made_stale(StaleReason.QUARANTINED, now))
        case Action.RESTORE:
            return Change(row, row.made_available(now))
        case Action.RELEASE | Action.RETRY_DELETION:
            return Change(row, row.sent_to_deletion(now))


def decide_failed_deletion(
    row: Sandbox, policy: DeletionPolicy, *, jitter: float, now: int
) -> Change:
    """Another try later, each wait twice the last (less a random share), or the end of trying."""
    count = row.deletion_retry_count + 1
    failed = replace(row, deletion_retry_count=count, updated_at=now)
    if count >= policy.max_attempts:
        return Change(row, replace(failed, status=Status.DELETION_FAILED, next_attempt_at=None))
    longest = min(policy.backoff_base_sec * 2 ** (count - 1), policy.backoff_max_sec)
    wait = max(1, round(longest * (1 - jitter / 2)))
    return Change(row, replace(failed, next_attempt_at=now + wait))


def _owned_tombstone(tombstone: Tombstone, track_id: str, now: int) -> bool:
    return tombstone.allocated_to_track == track_id and now < tombstone.kept_until
