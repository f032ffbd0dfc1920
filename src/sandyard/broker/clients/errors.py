"""What can go wrong with a client, its token or its limits."""

from sandyard.broker.pool.errors import TrackRateLimitedError
from sandyard.kit.errors import (
    ConflictError,
    ExhaustedError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RateLimitedError,
    UnavailableError,
)


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
    """This client is at its limit of leases, with the replaced sandboxes that are held for it.
    Release one, or try again later."""

    code = "CLIENT_LEASE_LIMIT"


class ClientHoldLimitError(RateLimitedError):
    """Too many sandboxes that this client replaced are held. Try again when their holds have ended,
    or ask an operator to release them."""

    code = "CLIENT_HOLD_LIMIT"


class ClientBudgetError(RateLimitedError):
    """This client has taken as many sandboxes from the pool as it may in this hour. Wait
    `retry_after` seconds; its leases are not affected."""

    code = "CLIENT_BUDGET_EXCEEDED"


class IssuerUnavailableError(UnavailableError):
    """The keys that verify access tokens can't be fetched from AUTH_JWKS_URL. Try again shortly."""

    code = "AUTH_ISSUER_UNAVAILABLE"
