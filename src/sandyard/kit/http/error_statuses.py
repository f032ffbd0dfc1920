"""The one table from errors to HTTP statuses, and what each status means to a caller.

An error has the status of its most specific category here, whatever part raises it. An API that
speaks another protocol, such as E2B's, derives its own table from this one.
"""

from collections.abc import Mapping

from sandyard.kit import errors

STATUS: Mapping[type[errors.SandyardError], int] = {
    errors.InvalidError: 400,
    errors.UnauthorizedError: 401,
    errors.ForbiddenError: 403,
    errors.NotFoundError: 404,
    errors.MethodNotAllowedError: 405,
    errors.ConflictError: 409,
    errors.ExhaustedError: 409,
    errors.BodyTooLargeError: 413,
    errors.RangeNotSatisfiableError: 416,
    errors.RateLimitedError: 429,
    errors.SandyardError: 500,
    errors.UnsupportedError: 501,
    errors.BadGatewayError: 502,
    errors.UnavailableError: 503,
    errors.GatewayTimeoutError: 504,
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
    501: "This server is not set up for it",
    503: "An engine or the provider is unavailable",
}


def status_of(
    error: errors.SandyardError, statuses: Mapping[type[errors.SandyardError], int] = STATUS
) -> int:
    return next(statuses[kind] for kind in type(error).__mro__ if kind in statuses)
