"""What can go wrong with a lease, each with the code that callers rely on."""

from collections.abc import Iterable

from sandyard.kit.errors import (
    ConflictError,
    ExhaustedError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RateLimitedError,
    UnavailableError,
)


class NoSandboxesAvailableError(ExhaustedError):
    """No sandbox is free. Try again after `retry_after` seconds, or enlarge the pool."""

    code = "NO_SANDBOXES_AVAILABLE"


class SandboxNotFoundError(NotFoundError):
    """There is no sandbox with this id. Use the `sandbox_id` that `allocate` answered."""

    code = "SANDBOX_NOT_FOUND"


class NotSandboxOwnerError(ForbiddenError):
    """This sandbox is not allocated to your track. Use the id that your own `allocate` answered."""

    code = "NOT_SANDBOX_OWNER"


class AllocationExpiredError(ForbiddenError):
    """The lab's time is over; the sandbox is reclaimed without your help. Allocate a new one."""

    code = "ALLOCATION_EXPIRED"


class TransitionNotAllowedError(ConflictError):
    """The sandbox's state does not allow this action."""

    code = "TRANSITION_NOT_ALLOWED"

    def __init__(self, action: str, status: str, allowed_from: Iterable[str]) -> None:
        allowed = " or ".join(allowed_from)
        super().__init__(
            f"Cannot {action} a sandbox that is {status}: it must be {allowed}.",
            details={"status": status, "allowed_from": list(allowed_from)},
        )


class RowBusyError(UnavailableError):
    """The sandbox changed again and again while this was decided. Try again shortly."""

    code = "SANDBOX_BUSY"


class InvalidTrackIdError(InvalidError):
    """Send `X-Track-ID` once, with 1 to 128 characters out of A-Z a-z 0-9 . _ : and -."""

    code = "INVALID_TRACK_ID"


class InvalidIdempotencyKeyError(InvalidError):
    """Send `Idempotency-Key` at most once, with 1 to 128 visible ASCII characters."""

    code = "INVALID_IDEMPOTENCY_KEY"


class InvalidNamePrefixError(InvalidError):
    """Send `X-Sandbox-Name-Prefix` at most once: 1 to 128 printable ASCII, no blank at an end."""

    code = "INVALID_NAME_PREFIX"


class InvalidTrackNameError(InvalidError):
    """Send `X-Instruqt-Track-ID` at most once: 1 to 128 printable ASCII, no blank at an end."""

    code = "INVALID_TRACK_NAME"


class TrackRateLimitedError(RateLimitedError):
    """This track asks too often. Wait `retry_after` seconds; a lease it has stays its own."""


class ProviderUnavailableError(UnavailableError):
    """The cloud provider does not answer as it should. The pool keeps serving; try again later."""

    code = "PROVIDER_UNAVAILABLE"


class CircuitOpenError(ProviderUnavailableError):
    """The provider failed too often and is left alone for a while; then it is tried again."""

    code = "PROVIDER_CIRCUIT_OPEN"


class ProviderMismatchError(ConflictError):
    """The pool belongs to another provider. Set CSP_BASE_URL as before, or use another pool."""

    code = "PROVIDER_MISMATCH"

    def __init__(self, remembered: str | None, configured: str) -> None:
        """`remembered` is None if it is only known that it is another one."""
        super().__init__(
            f"The pool has the sandboxes of {_provider(remembered)}, and this would serve it with "
            f"{_provider(configured)}: they would be mixed. Set CSP_BASE_URL as it was, or choose "
            "another --data-dir or database. If only the address is new: "
            "`sandyard pool set-provider`.",
            details={"remembered": remembered, "configured": configured},
        )


class ProviderChangeRefusedError(ConflictError):
    """The pool has sandboxes, and a simulated provider's never belong to a real one. Use another
    --data-dir or database, or delete them first."""

    code = "PROVIDER_CHANGE_REFUSED"


def _provider(name: str | None) -> str:
    match name:
        case None:
            return "another provider"
        case "simulated":
            return "the simulated provider"
        case _:
            return f"the provider at {name}"
