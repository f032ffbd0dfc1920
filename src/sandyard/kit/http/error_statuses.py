"""The one table from errors to HTTP statuses, and what each status means to a caller.

An error has the status of its most specific category here, whatever part raises it. An API that
speaks another protocol, such as E2B's, derives its own table from this one.
"""

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

MEANINGS: Mapping[int, str] = {
    400: "A header, parameter or body is malformed; the code says which",
    401: "The credential is missing or not valid for this endpoint",
    403: "The credential does not allow this",
    404: "Not found",
    405: "The path does not take this method",
    409: "The present state does not allow it, or nothing is left",
    413: "The body is too large",
    416: "The range is outside the file",
    429: "Too many requests",
    500: "An internal error of the server",
    503: "An engine or the provider is unavailable",
}


def status_of(error: SandyardError, statuses: Mapping[type[SandyardError], int] = STATUS) -> int:
    return next(statuses[kind] for kind in type(error).__mro__ if kind in statuses)
