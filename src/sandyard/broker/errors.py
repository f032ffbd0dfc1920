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
    """There is no sandbox with this id. Use the `sandbox_id` that `allocate` returned."""

    code = "SANDBOX_NOT_FOUND"


class TicketNotFoundError(NotFoundError):
    """This track and key are not in the queue."""

    code = "TICKET_NOT_FOUND"


class NotSandboxOwnerError(ForbiddenError):
    """This sandbox is not allocated to your track. Use the id that your own `allocate` returned."""

    code = "NOT_SANDBOX_OWNER"


class AllocationExpiredError(ForbiddenError):
    """The lease has expired, and the sandbox is reclaimed automatically. Allocate a new one."""

    code = "ALLOCATION_EXPIRED"


class ReservationNotFoundError(NotFoundError):
    """There is no reservation with this id. List them with their times to find it."""

    code = "RESERVATION_NOT_FOUND"


class OverbookedError(ConflictError):
    """The pool is too small for this reservation and the others at that time. Request at most
    `possible` of the details, choose another time, or raise POOL_MAX_TOTAL."""

    code = "OVERBOOKED"

    def __init__(self, *, possible: int) -> None:
        super().__init__(details={"possible": possible})


class ReservationExistsError(ConflictError):
    """Another reservation was made with this `Idempotency-Key`. Send a new key, or the same body as
    before."""

    code = "RESERVATION_EXISTS"


class InvalidReservationError(InvalidError):
    """Send a `to` that is later than `from` and than now, at most 366 days after `from`, and
    either `track_prefix` or `client`."""

    code = "INVALID_RESERVATION"


class LeaseTooLongError(ConflictError):
    """The lease would be longer than LEASE_MAX_HOURS. Request at most `possible_minutes` of the
    details."""

    code = "LEASE_TOO_LONG"

    def __init__(self, *, possible_minutes: int) -> None:
        super().__init__(details={"possible_minutes": possible_minutes})


class TransitionNotAllowedError(ConflictError):
    """The sandbox's state does not allow this action."""

    code = "TRANSITION_NOT_ALLOWED"

    def __init__(self, action: str, status: str, allowed_from: Iterable[str]) -> None:
        allowed = " or ".join(allowed_from)
        super().__init__(
            f"Cannot {action} a sandbox that is {status}: it must be {allowed}.",
            details={"status": status, "allowed_from": list(allowed_from)},
        )


class AlreadyLeasedError(ConflictError):
    """A track has had this sandbox, and a sandbox is never leased twice. Release it to delete
    it."""

    code = "ALREADY_LEASED"


class RowBusyError(UnavailableError):
    """The sandbox kept changing during this call. Try again shortly."""

    code = "SANDBOX_BUSY"


class InvalidTrackIdError(InvalidError):
    """Send `X-Track-ID` once, with 1 to 128 of the characters A-Z a-z 0-9 . _ : and -."""

    code = "INVALID_TRACK_ID"


class InvalidIdempotencyKeyError(InvalidError):
    """Send `Idempotency-Key` at most once, with 1 to 128 visible ASCII characters."""

    code = "INVALID_IDEMPOTENCY_KEY"


class InvalidNamePrefixError(InvalidError):
    """Send `X-Sandbox-Name-Prefix` at most once: 1 to 128 printable ASCII characters, no leading or
    trailing blank."""

    code = "INVALID_NAME_PREFIX"


class InvalidTrackNameError(InvalidError):
    """Send `X-Instruqt-Track-ID` at most once: 1 to 128 printable ASCII characters, no leading or
    trailing blank."""

    code = "INVALID_TRACK_NAME"


class InvalidLabMinutesError(InvalidError):
    """Send `X-Lab-Minutes` at most once, as a whole number from 1 to 60 x LEASE_MAX_HOURS."""

    code = "INVALID_LAB_MINUTES"


class InvalidPreferError(InvalidError):
    """Send `Prefer: wait=60` at most once, with whole seconds."""

    code = "INVALID_PREFER"


class InvalidPriorityError(InvalidError):
    """Send `Priority: u=3` at most once, with an urgency from 0 (served first) to 7."""

    code = "INVALID_PRIORITY"


class TrackRateLimitedError(RateLimitedError):
    """This track asks too often. Wait `retry_after` seconds; a lease it has stays its own."""


class WebhookNotFoundError(NotFoundError):
    """There is no such webhook. `GET …/admin/webhooks` lists them."""

    code = "WEBHOOK_NOT_FOUND"


class EventNotFoundError(NotFoundError):
    """There is no such event, or it was removed. Use an `event_id` from a listing."""

    code = "EVENT_NOT_FOUND"


class WebhookAddressError(InvalidError):
    """The webhook's host has a private address. Use a public address, or add its network to
    WEBHOOK_ALLOWED_NETWORKS."""

    code = "WEBHOOK_ADDRESS_REFUSED"


class WebhooksOffError(ConflictError):
    """Webhooks are off on this server. Add `webhooks` to EVENT_SINKS."""

    code = "WEBHOOKS_OFF"


class WebhookBusyError(UnavailableError):
    """Others are changing the webhook at the same time. Try again."""

    code = "WEBHOOK_BUSY"


class SinkError(UnavailableError):
    """A sink did not accept an event. The event is sent again later."""

    code = "SINK_UNAVAILABLE"


class ClientExistsError(ConflictError):
    """There is already a client with this name. Choose another name, or add a token to that
    client."""

    code = "CLIENT_EXISTS"


class ClientNotFoundError(NotFoundError):
    """There is no such client. `sandyard clients list` shows them."""

    code = "CLIENT_NOT_FOUND"


class ClientTokenNotFoundError(NotFoundError):
    """The client has no such token. `sandyard clients list` shows the ids of its tokens."""

    code = "CLIENT_TOKEN_NOT_FOUND"


class TooManyClientTokensError(ConflictError):
    """The client already has ten tokens. Revoke one that is no longer used."""

    code = "TOO_MANY_CLIENT_TOKENS"


class TokenExpiryPassedError(InvalidError):
    """`expires_at` is in the past. Send a future time, or leave it out."""

    code = "TOKEN_EXPIRY_PASSED"


class ClientBusyError(UnavailableError):
    """Others are changing the client at the same time. Try again."""

    code = "CLIENT_BUSY"


class InsufficientScopeError(ForbiddenError):
    """The token is valid but lacks the scope for this call. Use one that has it."""

    code = "INSUFFICIENT_SCOPE"


class TrackNotAllowedError(ForbiddenError):
    """The token is for tracks with another prefix. Send a track id that begins with it."""

    code = "TRACK_NOT_ALLOWED"


class AddressNotAllowedError(ForbiddenError):
    """Operators may not call from this address. Add its network to IP_ALLOWLIST."""

    code = "ADDRESS_NOT_ALLOWED"


class ClientRateLimitedError(TrackRateLimitedError):
    """This client sends too many requests. Wait `retry_after` seconds; its leases are not
    affected."""

    code = "CLIENT_RATE_LIMIT_EXCEEDED"


class ClientLeaseLimitError(ExhaustedError):
    """This client is at its limit of leases. Release one, or try again later."""

    code = "CLIENT_LEASE_LIMIT"


class IssuerUnavailableError(UnavailableError):
    """The keys that verify access tokens can't be fetched from AUTH_JWKS_URL. Try again shortly."""

    code = "AUTH_ISSUER_UNAVAILABLE"


class ProbeDeadlineError(UnavailableError):
    """Free sandboxes failed their probes, and none that passes was found in time. Try again after
    `retry_after` seconds."""

    code = "PROBE_DEADLINE"


class ProviderUnavailableError(UnavailableError):
    """The cloud provider fails or does not respond. The pool keeps serving; try again later."""

    code = "PROVIDER_UNAVAILABLE"


class CircuitOpenError(ProviderUnavailableError):
    """The provider failed too often and is not called for a while. It is retried automatically."""

    code = "PROVIDER_CIRCUIT_OPEN"


class JobNotFoundError(NotFoundError):
    """The Broker has no such job. `GET /v1/admin/jobs` lists them."""

    code = "JOB_NOT_FOUND"


class CreationNotSupportedError(ConflictError):
    """The provider's API can't create sandboxes. Create them there; `sync` adds them."""

    code = "CREATION_NOT_SUPPORTED"


class ProviderMismatchError(ConflictError):
    """The pool belongs to another provider. Set CSP_BASE_URL as before, or use another pool."""

    code = "PROVIDER_MISMATCH"

    def __init__(self, remembered: str | None, configured: str) -> None:
        """`remembered` is None if it is only known that it is another one."""
        super().__init__(
            f"The pool belongs to {_provider(remembered)}, and CSP_BASE_URL selects "
            f"{_provider(configured)}. Set CSP_BASE_URL as before, or choose another --data-dir or "
            "database. If only the address has changed, run `sandyard pool set-provider`.",
            details={"remembered": remembered, "configured": configured},
        )


class ProviderChangeRefusedError(ConflictError):
    """The pool is not empty, and sandboxes of a simulated provider never belong to a real one. Use
    another --data-dir or database, or delete the sandboxes first."""

    code = "PROVIDER_CHANGE_REFUSED"


def _provider(name: str | None) -> str:
    match name:
        case None:
            return "another provider"
        case "simulated":
            return "the simulated provider"
        case _:
            return f"the provider at {name}"
