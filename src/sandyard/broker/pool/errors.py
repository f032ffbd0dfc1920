"""What can go wrong with a sandbox of the pool or its lease."""

from collections.abc import Iterable

from sandyard.kit import errors


class NoSandboxesAvailableError(errors.ExhaustedError):
    """No sandbox is free. Try again after `retry_after` seconds, or enlarge the pool."""


class SandboxNotFoundError(errors.NotFoundError):
    """There is no sandbox with this id. Use the `sandbox_id` that `allocate` returned."""


class LeaseNotFoundError(errors.NotFoundError):
    """This track and key have no lease: it was released and its sandbox deleted, or never made."""


class NotSandboxOwnerError(errors.ForbiddenError):
    """This sandbox is not allocated to your track. Use the id that your own `allocate` returned."""


class AllocationExpiredError(errors.ForbiddenError):
    """The lease has expired, and the sandbox is reclaimed automatically. Allocate a new one."""


class LeaseTooLongError(errors.ConflictError):
    """The lease would be longer than LEASE_MAX_HOURS. Request at most `possible_minutes` of the
    details."""

    def __init__(self, *, possible_minutes: int) -> None:
        super().__init__(details={"possible_minutes": possible_minutes})


class TransitionNotAllowedError(errors.ConflictError):
    """The sandbox's state does not allow this action."""

    def __init__(self, action: str, status: str, allowed_from: Iterable[str]) -> None:
        allowed = " or ".join(allowed_from)
        super().__init__(
            f"Cannot {action} a sandbox that is {status}: it must be {allowed}.",
            details={"status": status, "allowed_from": list(allowed_from)},
        )


class AlreadyLeasedError(errors.ConflictError):
    """A track has had this sandbox, and a sandbox is never leased twice. Release it to delete
    it."""


class ReplacementLimitError(errors.RateLimitedError):
    """The sandbox of this lease was replaced as often as LEASE_MAX_REPLACEMENTS allows. Ask an
    operator to replace it, or allocate another after `retry_after` seconds, when the lease ends."""


class RowBusyError(errors.UnavailableError):
    """The sandbox kept changing during this call. Try again shortly."""

    code = "SANDBOX_BUSY"


class InvalidTrackIdError(errors.InvalidError):
    """Send `X-Track-ID` once, with 1 to 128 of the characters A-Z a-z 0-9 . _ : and -."""


class InvalidNamePrefixError(errors.InvalidError):
    """Send `X-Sandbox-Name-Prefix` at most once: 1 to 128 printable ASCII characters, no leading or
    trailing blank."""


class InvalidTrackNameError(errors.InvalidError):
    """Send `X-Instruqt-Track-ID` at most once: 1 to 128 printable ASCII characters, no leading or
    trailing blank."""


class InvalidLabMinutesError(errors.InvalidError):
    """Send `X-Lab-Minutes` at most once, as a whole number from 1 to 60 x LEASE_MAX_HOURS."""


class TrackRateLimitedError(errors.RateLimitedError):
    """This track asks too often. Wait `retry_after` seconds; a lease it has stays its own."""

    code = errors.RateLimitedError.code
