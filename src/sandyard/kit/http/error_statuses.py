"""The HTTP status of each error category."""

from collections.abc import Mapping

from sandyard.kit.errors import (
    BadGatewayError,
    BodyTooLargeError,
    ConflictError,
    ExhaustedError,
    ForbiddenError,
    GatewayTimeoutError,
    InvalidError,
    MethodNotAllowedError,
    NotFoundError,
    RangeNotSatisfiableError,
    RateLimitedError,
    SandyardError,
    UnauthorizedError,
    UnavailableError,
)

STATUS: Mapping[type[SandyardError], int] = {
    InvalidError: 400,
    UnauthorizedError: 401,
    ForbiddenError: 403,
    NotFoundError: 404,
    MethodNotAllowedError: 405,
    ConflictError: 409,
    ExhaustedError: 409,
    BodyTooLargeError: 413,
    RangeNotSatisfiableError: 416,
    RateLimitedError: 429,
    SandyardError: 500,
    BadGatewayError: 502,
    UnavailableError: 503,
    GatewayTimeoutError: 504,
}


def status_of(error: SandyardError, statuses: Mapping[type[SandyardError], int] = STATUS) -> int:
    """The status of the most specific category of the error."""
    return next(statuses[kind] for kind in type(error).__mro__ if kind in statuses)
