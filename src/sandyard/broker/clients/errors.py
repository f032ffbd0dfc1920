"""What can go wrong with a client, its token or its limits."""

from sandyard.broker.pool.errors import TrackRateLimitedError
from sandyard.kit import errors


class ClientExistsError(errors.ConflictError):
    """There is already a client with this name. Choose another name, or add a token to that
    client."""


class ClientNotFoundError(errors.NotFoundError):
    """There is no such client. `sandyard clients list` shows them."""


class ClientTokenNotFoundError(errors.NotFoundError):
    """The client has no such token. `sandyard clients tokens` shows the ids of its tokens."""


class TooManyClientTokensError(errors.ConflictError):
    """The client already has ten tokens. Revoke one that is no longer used."""


class TokenExpiryPassedError(errors.InvalidError):
    """`expires_at` is in the past. Send a future time, or leave it out."""


class ClientBusyError(errors.UnavailableError):
    """Others are changing the client at the same time. Try again."""


class InsufficientScopeError(errors.ForbiddenError):
    """The token is valid but lacks the scope for this call. Use one that has it."""


class TrackNotAllowedError(errors.ForbiddenError):
    """The token is for tracks with another prefix. Send a track id that begins with it."""


class AddressNotAllowedError(errors.ForbiddenError):
    """Operators may not call from this address. Add its network to IP_ALLOWLIST."""


class ClientRateLimitedError(TrackRateLimitedError):
    """This client sends too many requests. Wait `retry_after` seconds; its leases are not
    affected."""

    code = "CLIENT_RATE_LIMIT_EXCEEDED"


class ClientLeaseLimitError(errors.ExhaustedError):
    """This client is at its limit of leases, with the replaced sandboxes that are held for it.
    Release one, or try again later."""


class ClientHoldLimitError(errors.RateLimitedError):
    """Too many sandboxes that this client replaced are held. Try again when their holds have ended,
    or ask an operator to release them."""


class ClientBudgetError(errors.RateLimitedError):
    """This client has taken as many sandboxes from the pool as it may in this hour. Wait
    `retry_after` seconds; its leases are not affected."""

    code = "CLIENT_BUDGET_EXCEEDED"


class IssuerUnavailableError(errors.UnavailableError):
    """The keys that verify access tokens can't be fetched from AUTH_JWKS_URL. Try again shortly."""

    code = "AUTH_ISSUER_UNAVAILABLE"
