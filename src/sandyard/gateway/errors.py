"""Errors on the way to a program, each with a stable code."""

from sandyard.kit import errors


class AddressUnknownError(errors.NotFoundError):
    """There is no sandbox at this address that you may see. If it is yours, create a link to it
    with `POST /api/v1/sandboxes/{id}/tokens`, for a preview with
    `POST /api/v1/projects/{id}/tokens`."""


class TargetUnknownError(errors.NotFoundError):
    """You have no sandbox or project with this id. List yours to find it."""


class AccessTokenError(errors.UnauthorizedError):
    """The access token has expired or is not for this address. Request a new one."""

    code = "ACCESS_TOKEN_INVALID"


class TrafficTokenError(errors.ForbiddenError):
    """Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is
    missing"""

    code = "TRAFFIC_TOKEN_MISSING"


class TrafficTokenWrongError(errors.ForbiddenError):
    """Sandbox is secured with traffic access token. Provided token in header
    'e2b-traffic-access-token' is invalid"""

    code = "TRAFFIC_TOKEN_INVALID"


class OriginRefusedError(errors.ForbiddenError):
    """The cookie is valid only for pages of this address. From elsewhere, send the token as
    `X-Access-Token`."""


class TunnelRefusedError(errors.InvalidError):
    """The gateway forwards only HTTP requests and WebSockets, with no transfer coding except
    chunked."""


class TooManyConnectionsError(errors.RateLimitedError):
    """This sandbox is at its limit of open connections. Close some, or try again shortly."""


class TargetNotRunningError(errors.BadGatewayError):
    """The sandbox is not running. Start it first."""

    code = "SANDBOX_NOT_RUNNING"


class PortNotListeningError(errors.BadGatewayError):
    """Nothing listens on this port of the sandbox. Start the program, and make it listen there."""


class ProgramBrokeOffError(errors.BadGatewayError):
    """The program closed the connection before it responded. Its logs may say why."""


class ProgramAnswerError(errors.BadGatewayError):
    """The program's response is not valid HTTP/1.1. Its logs may say why."""

    code = "PROGRAM_ANSWER_MALFORMED"


class ProgramTimeoutError(errors.GatewayTimeoutError):
    """The program did not respond in time. Its logs may say why."""
