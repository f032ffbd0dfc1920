"""The categories of errors that callers can act on.

A part subclasses these; the docstring is the default message. An error's stable `code` is its
class's name (`LastAdminError`: LAST_ADMIN), unless the class sets another. Which HTTP status a
category becomes is decided in one place, `kit.http.error_statuses`.
"""

import re
from typing import Any, ClassVar


class SandyardError(Exception):
    """Internal error. Retry, and report the request id if it persists."""

    code: ClassVar[str] = "INTERNAL_ERROR"

    def __init_subclass__(cls, *, prefix: str = "") -> None:
        """`prefix` begins the code, for names that several APIs have."""
        if "code" not in cls.__dict__:
            name = cls.__name__.removesuffix("Error")
            cls.code = prefix + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after: int | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        self.message = message or " ".join((type(self).__doc__ or "").split())
        self.retry_after = retry_after
        self.details = details
        super().__init__(self.message)


class InvalidError(SandyardError):
    """The request is malformed. Correct it as the details say and send it again."""

    code = "INVALID_REQUEST"


class UnauthorizedError(SandyardError):
    """The bearer token is missing or invalid. Send `Authorization: Bearer …`."""

    scheme: str = "Bearer"
    """The authentication scheme of the endpoint, for `WWW-Authenticate`."""


class MetricsTokenError(UnauthorizedError):
    """Metrics require METRICS_TOKEN on this server. Send it as `Authorization: Bearer …`, or scrape
    METRICS_PORT."""

    code = "METRICS_TOKEN_REQUIRED"


class ForbiddenError(SandyardError):
    """You do not have access to this."""


class NotFoundError(SandyardError):
    """Not found. Check the path and the id."""


class ConflictError(SandyardError):
    """The current state does not allow this."""


class ExhaustedError(SandyardError):
    """Nothing is available right now. Try again after `retry_after` seconds."""


class RangeNotSatisfiableError(SandyardError):
    """The range is outside the file. Request a range within its size."""


class RateLimitedError(SandyardError):
    """Too many requests. Wait `retry_after` seconds."""

    code = "RATE_LIMIT_EXCEEDED"


class UnavailableError(SandyardError):
    """An engine or a provider does not respond. Nothing was decided; try again shortly."""

    code = "SERVICE_UNAVAILABLE"

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after: int | None = 5,
        details: dict[str, Any] | None = None,
        reason: str | None = None,
    ) -> None:
        """`reason` is what the engine said; it goes to the log, never to a caller."""
        super().__init__(message, retry_after=retry_after, details=details)
        self.reason = reason


def with_reason(error: SandyardError) -> str:
    """The message, for an operator: with what the engine said."""
    reason = error.reason if isinstance(error, UnavailableError) else None
    return error.message if reason is None else f"{error.message} ({reason})"


class UnsupportedError(SandyardError):
    """This server is not set up for this. Its operator can change that."""


class BadGatewayError(SandyardError):
    """The program behind this address did not return a valid response."""


class GatewayTimeoutError(SandyardError):
    """The program behind this address does not respond in time."""


class BodyTooLargeError(SandyardError):
    """The request body is larger than this server accepts. Send less at once."""


class BodyBrokenOffError(InvalidError):
    """The request body did not arrive completely and in time. Send it again without pauses."""


class UnknownQueryParameterError(InvalidError):
    """This call does not accept the query parameter. The details list the accepted ones."""


class RepeatedQueryParameterError(InvalidError):
    """A query parameter was sent more than once. Send each one once."""


class RepeatedCredentialError(InvalidError):
    """More than one credential was sent. Send one: `Authorization` or `X-API-Key`, once."""


class MethodNotAllowedError(SandyardError):
    """This path does not support the method. The `Allow` header lists the supported ones."""
