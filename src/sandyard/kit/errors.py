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
    """The bearer token is missing or does not open this door. Send `Authorization: Bearer …`."""

    code = "UNAUTHORIZED"
    scheme: ClassVar[str] = "Bearer"
    """How this door wants to be asked, for `WWW-Authenticate`."""


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


class BodyTooLargeError(SandyardError):
    """The request body is larger than this server takes. Send less at once."""

    code = "BODY_TOO_LARGE"


class BodyBrokenOffError(InvalidError):
    """The request's body did not arrive whole and in time. Send it again, without pauses."""

    code = "BODY_BROKEN_OFF"


class MethodNotAllowedError(SandyardError):
    """This path does not take that method. The `Allow` header lists those that it takes."""

    code = "METHOD_NOT_ALLOWED"
