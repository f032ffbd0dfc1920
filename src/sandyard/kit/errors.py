"""The categories of errors that callers can act on.

A part subclasses these with a stable `code`; the docstring is the default message. Which HTTP
status a category becomes is decided in one place, `entrypoints.errors`.
"""

from typing import Any, ClassVar


class SandyardError(Exception):
    """Something went wrong inside Sandyard. Retry, and report the request id if it stays."""

    code: ClassVar[str] = "INTERNAL_ERROR"

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
    """The bearer token is missing or not valid here. Send `Authorization: Bearer …`."""

    code = "UNAUTHORIZED"
    scheme: ClassVar[str] = "Bearer"
    """The authentication scheme of the endpoint, for `WWW-Authenticate`."""


class MetricsTokenError(UnauthorizedError):
    """Metrics need a METRICS_TOKEN here. Send it as `Authorization: Bearer …`, or scrape
    METRICS_PORT."""

    code = "METRICS_TOKEN_REQUIRED"


class ForbiddenError(SandyardError):
    """This is not yours."""

    code = "FORBIDDEN"


class NotFoundError(SandyardError):
    """There is nothing here. Check the path and the id."""

    code = "NOT_FOUND"


class ConflictError(SandyardError):
    """The present state does not allow this."""

    code = "CONFLICT"


class ExhaustedError(SandyardError):
    """Nothing is left to give out right now. Try again after `retry_after` seconds."""

    code = "EXHAUSTED"


class RangeNotSatisfiableError(SandyardError):
    """The range has no byte of the file. Ask for one within its size."""

    code = "RANGE_NOT_SATISFIABLE"


class RateLimitedError(SandyardError):
    """Too many requests. Wait `retry_after` seconds."""

    code = "RATE_LIMIT_EXCEEDED"


class UnavailableError(SandyardError):
    """An engine or a provider does not answer. Nothing was decided; try again shortly."""

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


class BadGatewayError(SandyardError):
    """What runs behind this address gives no usable answer."""

    code = "BAD_GATEWAY"


class GatewayTimeoutError(SandyardError):
    """What runs behind this address does not answer in time."""

    code = "GATEWAY_TIMEOUT"


class BodyTooLargeError(SandyardError):
    """The request body is larger than this server takes. Send less at once."""

    code = "BODY_TOO_LARGE"


class BodyBrokenOffError(InvalidError):
    """The request's body did not arrive whole and in time. Send it again, without pauses."""

    code = "BODY_BROKEN_OFF"


class UnknownQueryParameterError(InvalidError):
    """The call does not take this query parameter. The details list those that it takes."""

    code = "UNKNOWN_QUERY_PARAMETER"


class RepeatedQueryParameterError(InvalidError):
    """A query parameter was sent more than once. Send each one once."""

    code = "REPEATED_QUERY_PARAMETER"


class RepeatedCredentialError(InvalidError):
    """More than one credential was sent. Send one: `Authorization` or `X-API-Key`, once."""

    code = "REPEATED_CREDENTIAL"


class MethodNotAllowedError(SandyardError):
    """This path does not take that method. The `Allow` header lists those that it takes."""

    code = "METHOD_NOT_ALLOWED"
