"""The pool's vocabulary and rules: states, leases and every decision about them. No I/O.

A decision returns a transition. A store applies it atomically and never makes one of its own.
"""

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, Self

from sandyard.broker.pool import errors
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.frozen import fast_constructor, quick_replace
from sandyard.kit.changes.transitions import DATA, Cause, Transition, changed, changed_fields

TOMBSTONE_SECONDS = 7 * 24 * 3600
LEASE_GARBAGE_SECONDS = 7 * 24 * 3600
"""How long after its end the data of a lease may be garbage-collected."""

_SANDBOX_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")

OPERATOR = actor("operator")

RELEASED = "released by its track"
EXPIRED = "expired"
SUPERSEDED = "superseded by a new lease of the same key"


class Status(StrEnum):
    AVAILABLE = "available"
    RESERVED = "reserved"
    """Free, but only for the ticket or reservation in `reserved_for`."""
    ALLOCATED = "allocated"
    PENDING_DELETION = "pending_deletion"
    STALE = "stale"
    HELD = "held"
    """Set aside for inspection: neither leased nor deleted."""
    DELETION_FAILED = "deletion_failed"


class StaleReason(StrEnum):
    MISSING = "missing"
    QUARANTINED = "quarantined"


FREE = (Status.AVAILABLE, Status.RESERVED)
"""The states of a sandbox that can be leased."""
DELETING = (Status.PENDING_DELETION, Status.DELETION_FAILED)
UNUSED = (*FREE, Status.STALE)
"""The states of a sandbox that is neither leased nor being deleted."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One track's right to one sandbox: the response of `allocate`."""

    sandbox_id: str
    name: str
    external_id: str
    allocated_at: int
    expires_at: int

    def is_live(self, now: int) -> bool:
        return now < self.expires_at

    @property
    def collected_at(self) -> int:
        return self.expires_at + LEASE_GARBAGE_SECONDS


make_lease = fast_constructor(Lease)


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease with its track and key."""

    track_id: str
    key: str
    lease: Lease


@dataclass(frozen=True, slots=True)
class Claim:
    """A track's request for a sandbox; `key` distinguishes a retry from a second request."""

    track_id: str
    key: str
    now: int
    name_prefix: str = ""
    track_name: str | None = None
    at_ms: int | None = None
    """`now` in milliseconds, as used in events."""
    lease_sec: int | None = None
    """The length of the lease; None: that of the sandbox's lab."""
    client: str | None = None
    """The name of the calling client, if it is a named one."""
    reservations: tuple[str, ...] = ()
    """The track's reservations: sandboxes reserved for them are leased before available ones."""

    @property
    def lease_key(self) -> tuple[str, str]:
        return self.track_id, self.key

    def within(self, reservations: tuple[str, ...]) -> Self:
        return quick_replace(self, {"reservations": reservations})

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
    ends_at: int | None = None
    """The end of its lease. None before it is leased, and for old leases without a stored end,
    which last as long as their lab."""
    extension_keys: str | None = None
    """Space-separated keys of the last calls that extended the lease."""
    reserved_for: str | None = None
    """The id of the only ticket or reservation that may lease it while it is `reserved`."""
    reservation_id: str | None = None
    """The reservation that it counts for, also while it is leased."""
    status_reason: str | None = None
    """Why it is quarantined or held."""
    held_until: int | None = None
    """When the hold ends by itself."""
    hold_reminded_at: int | None = None
    replaced_by: str | None = None
    """The sandbox that replaced it in its track's lease."""
    replacements: int = 0
    """How many times its track has replaced the sandbox of its lease."""
    probe_failures: int = 0
    """Consecutive failed probes. If they led to a quarantine, a passed probe ends it."""
    probed_at: int | None = None
    """When it passed the probe at its claim; since then its track may know of it."""
    sequence: int = 0

    @property
    def expires_at(self) -> int | None:
        """The end of its current or last lease; None if it was never leased."""
        return self._end if self.allocated_at else None

    @property
    def lease(self) -> Lease:
        """The lease as its track sees it; only an allocated sandbox has one."""
        whose = (self.sandbox_id, self.name, self.external_id)
        return make_lease(*whose, self.allocated_at, self._end)

    @property
    def _end(self) -> int:
        if self.ends_at is not None:
            return self.ends_at
        return self.allocated_at + lab_seconds(self.lab_duration_hours)

    def is_leased_to(self, track_id: str, key: str) -> bool:
        owner = (self.allocated_to_track, self.idempotency_key)
        return self.status is Status.ALLOCATED and owner == (track_id, key)

    def sent_to_deletion(self, now: int) -> Self:
        """Queue it for deletion; repeating this keeps the time of the first request."""
        return replace(
            self,
            status=Status.PENDING_DELETION,
            stale_reason=None,
            status_reason=None,
            held_until=None,
            hold_reminded_at=None,
            deletion_requested_at=self.deletion_requested_at or now,
            deletion_retry_count=0,
            next_attempt_at=now,
            updated_at=now,
        )

    def made_stale(self, reason: StaleReason, now: int, *, why: str | None = None) -> Self:
        unused = self._unused(Status.STALE, now)
        return replace(unused, stale_reason=reason, status_reason=why)

    def made_available(self, now: int) -> Self:
        return self._unused(Status.AVAILABLE, now)

    def _unused(self, status: Status, now: int) -> Self:
        """In this state, with no holder and no reason."""
        return replace(
            self,
            status=status,
            stale_reason=None,
            reserved_for=None,
            reservation_id=None,
            status_reason=None,
            held_until=None,
            hold_reminded_at=None,
            probe_failures=0,
            updated_at=now,
        )

    def listed_as(self, name: str, now: int) -> Self:
        return replace(self, name=name, last_synced=now, updated_at=now)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The record of a removed sandbox, so that an outdated list does not add it again."""

    SUBJECT: ClassVar[str] = "sandbox_id"
    OWNER: ClassVar[str | None] = None

    sandbox_id: str
    external_id: str
    allocated_to_track: str | None
    deletion_requested_at: int | None
    deleted_at: int
    kept_until: int = field(metadata=DATA)
    replaced_by: str | None = field(default=None, metadata=DATA)
    """The sandbox that replaced it in its track's lease."""
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
            replaced_by=sandbox.replaced_by,
        )


PoolTransition = Transition[Sandbox] | Transition[Sandbox | Tombstone]


@dataclass(frozen=True, slots=True)
class Listed:
    """A sandbox as the provider lists it."""

    external_id: str
    name: str


def is_sandbox_id(text: str) -> bool:
    return bool(_SANDBOX_ID.match(text))


def lab_seconds(hours: float) -> int:
    return round(hours * 3600)


def tombstone_end(now: int) -> int:
    return now + TOMBSTONE_SECONDS


def decide_claim(free: Sandbox, claim: Claim) -> Transition[Sandbox]:
    length = claim.lease_sec or lab_seconds(free.lab_duration_hours)
    lease = {
        "status": Status.ALLOCATED,
        "allocated_to_track": claim.track_id,
        "idempotency_key": claim.key,
        "track_name": claim.track_name,
        "allocated_at": claim.now,
        "ends_at": claim.now + length,
        "reserved_for": None,
        "updated_at": claim.now,
    }
    named = {"name": free.name, "external_id": free.external_id}
    return changed_fields(free, lease, "lease.created", claim.cause, also=named)


def decide_reserved(
    free: Sandbox, holder: str, cause: Cause, *, reservation_id: str | None = None
) -> Transition[Sandbox]:
    """Reserve a free sandbox for a ticket, or for a reservation's tracks."""
    after = replace(
        free,
        status=Status.RESERVED,
        reserved_for=holder,
        reservation_id=reservation_id,
        updated_at=seconds_of(cause),
    )
    return changed(free, after, "sandbox.reserved", cause)


def decide_unreserved(reserved: Sandbox, cause: Cause) -> Transition[Sandbox]:
    after = reserved.made_available(seconds_of(cause))
    return changed(reserved, after, "sandbox.unreserved", cause)


def decide_superseded(row: Sandbox, claim: Claim) -> Transition[Sandbox] | None:
    """End the lease that the claim's key had before; None if the row has no such lease."""
    if not row.is_leased_to(*claim.lease_key):
        return None
    return end_lease(row, claim.cause.because(SUPERSEDED))


def decide_mark(
    row: Sandbox | Tombstone | None, *, track_id: str, cause: Cause
) -> Transition[Sandbox] | None:
    """End the lease because `track_id` releases it; None if it was released before."""
    now = seconds_of(cause)
    if isinstance(row, Tombstone):
        if row.allocated_to_track != track_id or now >= row.kept_until:
            raise errors.SandboxNotFoundError
        return None
    sandbox = owned_by(row, track_id)
    if sandbox.status is not Status.ALLOCATED:
        return None
    if sandbox.expires_at is None or now >= sandbox.expires_at:
        raise errors.AllocationExpiredError
    return end_lease(sandbox, cause.because(RELEASED))


def existing(row: Sandbox | Tombstone | None) -> Sandbox:
    if not isinstance(row, Sandbox):
        raise errors.SandboxNotFoundError
    return row


def owned_by(row: Sandbox | Tombstone | None, track_id: str) -> Sandbox:
    """The row, if `track_id` is its current or last owner."""
    row = existing(row)
    if row.allocated_to_track != track_id or row.status in UNUSED:
        raise errors.NotSandboxOwnerError
    return row


def is_overdue(sandbox: Sandbox, *, grace_sec: int, now: int) -> bool:
    end = sandbox.expires_at
    return sandbox.status is Status.ALLOCATED and end is not None and end + grace_sec <= now


def decide_expiry(row: Sandbox, *, grace_sec: int, cause: Cause) -> Transition[Sandbox] | None:
    """End a lease that its track did not release; None if it is not due."""
    if not is_overdue(row, grace_sec=grace_sec, now=seconds_of(cause)):
        return None
    return end_lease(row, cause.because(EXPIRED))


def end_lease(row: Sandbox, cause: Cause) -> Transition[Sandbox]:
    """Send an allocated sandbox to deletion."""
    return changed(row, row.sent_to_deletion(seconds_of(cause)), "lease.ended", cause)


def seconds_of(cause: Cause) -> int:
    return cause.at_ms // 1000
