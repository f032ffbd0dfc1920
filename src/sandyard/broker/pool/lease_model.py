"""Changes of a lease besides its end: more time, or another sandbox while the old one is held. No
I/O."""

from dataclasses import dataclass, replace

from sandyard.broker.pool import errors
from sandyard.broker.pool.action_model import Action, decide_action
from sandyard.broker.pool.model import Sandbox, Status, Tombstone, existing, owned_by, seconds_of
from sandyard.kit.changes.transitions import Cause, Transition, changed, followed_by

HOLD_ENDED = "its hold has ended"
_KEYS = 10
"""How many keys are remembered; retries come soon."""


@dataclass(frozen=True, slots=True)
class Extension:
    """A track's request for more time; `key` distinguishes a retry from a second request."""

    track_id: str
    minutes: int
    key: str | None = None


def lease_seconds(minutes: int, *, longest_sec: int) -> int:
    if minutes * 60 > longest_sec:
        raise errors.InvalidLabMinutesError(details={"longest_minutes": longest_sec // 60})
    return minutes * 60


def decide_extension(
    row: Sandbox | Tombstone | None, extension: Extension, *, longest_sec: int, cause: Cause
) -> Transition[Sandbox] | None:
    """A later end for the lease, within its maximum length; None if this request was already
    applied, or the lease is on the sandbox that has replaced this one."""
    sandbox = owned_by(row, extension.track_id)
    if sandbox.replaced_by is not None:
        return None
    if sandbox.status is not Status.ALLOCATED:
        raise errors.TransitionNotAllowedError("extend", sandbox.status, [Status.ALLOCATED])
    keys = (sandbox.extension_keys or "").split()
    if extension.key in keys:
        return None
    lease, now = sandbox.lease, seconds_of(cause)
    if not lease.is_live(now):
        raise errors.AllocationExpiredError
    end = lease.expires_at + extension.minutes * 60
    if end - lease.allocated_at > longest_sec:
        left = lease.allocated_at + longest_sec - lease.expires_at
        raise errors.LeaseTooLongError(possible_minutes=max(0, left // 60))
    remembered = " ".join([*keys, *([extension.key] if extension.key else [])][-_KEYS:]) or None
    after = replace(sandbox, ends_at=end, extension_keys=remembered, updated_at=now)
    return changed(sandbox, after, "lease.extended", cause)


@dataclass(frozen=True, slots=True)
class Replacement:
    """A track's request to replace its sandbox."""

    track_id: str
    reason: str
    name_prefix: str = ""
    client: str | None = None
    by: str | None = None
    """The actor who does it, if not the track."""
    unless_probed: bool = False
    """Do not replace a sandbox that has passed its probe meanwhile."""

    @property
    def is_counted(self) -> bool:
        """Whether it is the track's own wish, and not an operator's or a failed probe's."""
        return self.by is None and not self.unless_probed


def decide_hold(row: Sandbox | Tombstone | None, until: int, cause: Cause) -> Transition[Sandbox]:
    """Hold the sandbox, whatever its state: its lease ends, its deletion waits. A repeat changes
    the time."""
    row = existing(row)
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


def decide_hold_end(row: Sandbox, cause: Cause) -> Transition[Sandbox] | None:
    """End a hold whose time is over: a sandbox that a track has had is deleted, one that none has
    had is restored. None if it is not overdue."""
    now = seconds_of(cause)
    if row.status is not Status.HELD or row.held_until is None or row.held_until > now:
        return None
    after = replace(row, hold_reminded_at=now)
    overdue = changed(row, after, "sandbox.hold_overdue", cause.because(row.status_reason))
    action = Action.RELEASE if row.allocated_at else Action.RESTORE
    return followed_by(overdue, decide_action(overdue.result, action, cause.because(HOLD_ENDED)))


def replaceable(row: Sandbox | Tombstone | None, track_id: str, now: int) -> Sandbox:
    """The track's sandbox, if it may be replaced or has been replaced before."""
    sandbox = owned_by(row, track_id)
    if sandbox.replaced_by is not None:
        return sandbox
    if sandbox.status is not Status.ALLOCATED:
        raise errors.TransitionNotAllowedError("replace", sandbox.status, [Status.ALLOCATED])
    if not sandbox.lease.is_live(now):
        raise errors.AllocationExpiredError
    return sandbox


def check_replacements(old: Sandbox, wanted: Replacement, *, most: int, now: int) -> None:
    """Raise ReplacementLimitError if the track has replaced the sandbox of this lease `most`
    times."""
    if wanted.is_counted and old.replacements >= most:
        raise errors.ReplacementLimitError(
            retry_after=max(1, old.lease.expires_at - now), details={"replacements": most}
        )


def decide_replacement(
    old: Sandbox,
    free: Sandbox,
    *,
    held_until: int,
    cause: Cause,
    is_counted: bool = True,
    is_probed: bool = False,
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
        replacements=old.replacements + is_counted,
        probed_at=seconds_of(cause) if is_probed else None,
        updated_at=seconds_of(cause),
    )
    instead = cause.because(f"replaces {old.sandbox_id}")
    return (
        changed(old, held, "lease.replaced", cause),
        changed(free, leased, "lease.created", instead, also=("name", "external_id")),
    )
