"""The pool's vocabulary and rules: states, leases and every decision about them. No I/O.

A decision returns a transition. A store applies it atomically and never makes one of its own.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, Self

from sandyard.broker.errors import (
    AllocationExpiredError,
    NotSandboxOwnerError,
    SandboxNotFoundError,
    TransitionNotAllowedError,
)
from sandyard.kit import ids
from sandyard.kit.events import actor
from sandyard.kit.transitions import (
    DATA,
    Cause,
    Transition,
    changed,
    changed_in,
    created,
    replaced,
)

TOMBSTONE_SECONDS = 7 * 24 * 3600
LEASE_GARBAGE_SECONDS = 7 * 24 * 3600
"""How long after its end what is left of a lease may be collected as garbage."""

GIVEN_UP = "given up by its track"
RELEASED = "released by an operator"
EXPIRED = "expired"
SUPERSEDED = "superseded by a new lease of the same key"


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

    @property
    def collected_at(self) -> int:
        """When nobody can ask for it any more."""
        return self.expires_at + LEASE_GARBAGE_SECONDS


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease with whose it is."""

    track_id: str
    key: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class Claim:
    """A track's request for a sandbox; `key` tells a retry from a second request."""

    track_id: str
    key: str
    now: int
    name_prefix: str = ""
    track_name: str | None = None
    at_ms: int | None = None
    """`now` to the millisecond, as events have it."""

    @property
    def lease_key(self) -> tuple[str, str]:
        return self.track_id, self.key

    @property
    def cause(self) -> Cause:
        at_ms = self.now * 1000 if self.at_ms is None else self.at_ms
        return Cause(actor("track", self.track_id), at_ms)


@dataclass(frozen=True, slots=True)
class Claimed:
    lease: Lease
    is_new: bool


@dataclass(frozen=True, slots=True)
class Sandbox:
    SUBJECT: ClassVar[str] = "sandbox_id"
    OWNER: ClassVar[str | None] = None

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
    last_synced: int | None = field(default=None, metadata=DATA)
    stale_reason: StaleReason | None = None
    sequence: int = 0

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

    @property
    def lease(self) -> Lease:
        """What its track was told; only an allocated sandbox has one."""
        end = self.allocated_at + lab_seconds(self.lab_duration_hours)
        return Lease(self.sandbox_id, self.name, self.external_id, self.allocated_at, end)

    def is_leased_to(self, track_id: str, key: str) -> bool:
        owner = (self.allocated_to_track, self.idempotency_key)
        return self.status is Status.ALLOCATED and owner == (track_id, key)

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

    def listed_as(self, name: str, now: int) -> Self:
        return replace(self, name=name, last_synced=now, updated_at=now)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is kept of a removed sandbox, so that no late list brings it back."""

    SUBJECT: ClassVar[str] = "sandbox_id"
    OWNER: ClassVar[str | None] = None

    sandbox_id: str
    external_id: str
    allocated_to_track: str | None
    deletion_requested_at: int | None
    deleted_at: int
    kept_until: int = field(metadata=DATA)
    sequence: int = 0

    @classmethod
    def of(cls, sandbox: Sandbox, now: int) -> Self:
        return cls(
            sandbox_id=sandbox.sandbox_id,
            external_id=sandbox.external_id,
            allocated_to_track=sandbox.allocated_to_track,
            deletion_requested_at=sandbox.deletion_requested_at,
            deleted_at=now,
            kept_until=tombstone_end(now),
        )


PoolTransition = Transition[Sandbox] | Transition[Sandbox | Tombstone]


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


def tombstone_end(now: int) -> int:
    """How long a tombstone is kept that is made or renewed now."""
    return now + TOMBSTONE_SECONDS


def loses_too_many(missing: int, *, of: int) -> bool:
    """More than half of the free sandboxes and more than five: the list is probably broken."""
    return missing > 5 and missing * 2 > of


def decide_discovery(
    listed: Listed, *, lab_duration_hours: float, cause: Cause
) -> Transition[Sandbox]:
    """The sandbox joins the pool. Its id may have been in the pool before, so its sequence begins
    at the time."""
    now = _seconds(cause)
    found = Sandbox.discovered(listed, lab_duration_hours=lab_duration_hours, now=now)
    return created(found, "sandbox.discovered", cause, first=now)


def decide_claim(free: Sandbox, claim: Claim) -> Transition[Sandbox]:
    """Lease a free sandbox."""
    lease = {
        "status": Status.ALLOCATED,
        "allocated_to_track": claim.track_id,
        "idempotency_key": claim.key,
        "track_name": claim.track_name,
        "allocated_at": claim.now,
        "updated_at": claim.now,
    }
    return changed_in(free, lease, "lease.created", claim.cause)


def decide_superseded(row: Sandbox, claim: Claim) -> Transition[Sandbox] | None:
    """The end of the lease that this claim's key had before; None if the row has no such lease."""
    if not row.is_leased_to(*claim.lease_key):
        return None
    return _end_lease(row, claim.cause.because(SUPERSEDED))


def decide_mark(
    row: Sandbox | Tombstone | None, *, track_id: str, cause: Cause
) -> Transition[Sandbox] | None:
    """How the row changes when `track_id` gives it up; None when that was done before."""
    now = _seconds(cause)
    if isinstance(row, Tombstone):
        if not _owned_tombstone(row, track_id, now):
            raise SandboxNotFoundError
        return None
    sandbox = owned_by(row, track_id)
    if sandbox.status is not Status.ALLOCATED:
        return None
    if sandbox.expires_at is None or now >= sandbox.expires_at:
        raise AllocationExpiredError
    return _end_lease(sandbox, cause.because(GIVEN_UP))


def owned_by(row: Sandbox | Tombstone | None, track_id: str) -> Sandbox:
    """The row, if `track_id` has it or had it last."""
    if row is None or isinstance(row, Tombstone):
        raise SandboxNotFoundError
    if row.allocated_to_track != track_id or row.status in (Status.AVAILABLE, Status.STALE):
        raise NotSandboxOwnerError
    return row


def decide_action(row: Sandbox | None, action: Action, cause: Cause) -> Transition[Sandbox]:
    if row is None:
        raise SandboxNotFoundError
    if row.status not in _ALLOWED_FROM[action]:
        raise TransitionNotAllowedError(action, row.status, _ALLOWED_FROM[action])
    now = _seconds(cause)
    match action:
        case Action.QUARANTINE:
            after = row.made_stale(StaleReason.QUARANTINED, now)
            return changed(row, after, "sandbox.quarantined", cause)
        case Action.RESTORE:
            return changed(row, row.made_available(now), "sandbox.restored", cause)
        case Action.RELEASE if row.status is Status.ALLOCATED:
            return _end_lease(row, cause.because(cause.reason or RELEASED))
        case Action.RELEASE | Action.RETRY_DELETION:
            usual = RELEASED if action is Action.RELEASE else "retried by an operator"
            after, why = row.sent_to_deletion(now), cause.because(cause.reason or usual)
            return changed(row, after, "deletion.requested", why)


def is_overdue(sandbox: Sandbox, *, grace_sec: int, now: int) -> bool:
    """An allocation whose lab and grace period are both over: its track has forgotten it."""
    end = sandbox.expires_at
    return sandbox.status is Status.ALLOCATED and end is not None and end + grace_sec <= now


def decide_expiry(row: Sandbox, *, grace_sec: int, cause: Cause) -> Transition[Sandbox] | None:
    """The end of a lease that its track has forgotten; None if it is not due."""
    if not is_overdue(row, grace_sec=grace_sec, now=_seconds(cause)):
        return None
    return _end_lease(row, cause.because(EXPIRED))


def decide_listing(
    row: Sandbox, listed: Listed | None, *, cause: Cause
) -> Transition[Sandbox] | None:
    """What the provider's list changes: a free sandbox is missing, one that was is back, or one
    that nobody has leased has another name. What a track was told of its sandbox stays."""
    now = _seconds(cause)
    if listed is None:
        if row.status is not Status.AVAILABLE:
            return None
        after = row.made_stale(StaleReason.MISSING, now)
        return changed(row, after, "sandbox.missing", cause)
    if row.status not in (Status.AVAILABLE, Status.STALE) or row.allocated_at:
        return None
    if row.stale_reason is StaleReason.MISSING:
        after = row.made_available(now).listed_as(listed.name, now)
        reason = cause.because("the provider lists it again")
        return changed(row, after, "sandbox.restored", reason)
    if row.name == listed.name:
        return None
    return changed(row, row.listed_as(listed.name, now), "sandbox.renamed", cause)


def decide_failed_deletion(
    row: Sandbox, policy: DeletionPolicy, *, jitter: float, cause: Cause
) -> Transition[Sandbox]:
    """Retry after twice the last delay, less up to half of it at random; or fail for good."""
    now, count = _seconds(cause), row.deletion_retry_count + 1
    failed = replace(row, deletion_retry_count=count, updated_at=now)
    if count >= policy.max_attempts:
        after = replace(failed, status=Status.DELETION_FAILED, next_attempt_at=None)
        return changed(row, after, "deletion.failed", cause)
    longest = min(policy.backoff_base_sec * 2 ** (count - 1), policy.backoff_max_sec)
    wait = max(1, round(longest * (1 - jitter / 2)))
    return changed(row, replace(failed, next_attempt_at=now + wait), "deletion.retried", cause)


def decide_deleted(row: Sandbox, cause: Cause) -> Transition[Sandbox | Tombstone]:
    """The provider has deleted it: a tombstone takes its place."""
    return replaced(row, Tombstone.of(row, _seconds(cause)), "sandbox.deleted", cause)


def _end_lease(row: Sandbox, cause: Cause) -> Transition[Sandbox]:
    return changed(row, row.sent_to_deletion(_seconds(cause)), "lease.ended", cause)


def _owned_tombstone(tombstone: Tombstone, track_id: str, now: int) -> bool:
    return tombstone.allocated_to_track == track_id and now < tombstone.kept_until


def _seconds(cause: Cause) -> int:
    return cause.at_ms // 1000
