"""What can go wrong on the way to a program, each with the code that callers rely on."""

from sandyard.kit.errors import (
    BadGatewayError,
    ForbiddenError,
    GatewayTimeoutError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
)


class AddressUnknownError(NotFoundError):
    """There is no sandbox at this address that you may see. If it is yours, open it with a link:
    `POST /api/v1/sandboxes/{id}/tokens` makes one."""

    code = "ADDRESS_UNKNOWN"


class TargetUnknownError(NotFoundError):
    """You have no sandbox or project with this id. List yours to find it."""

    code = "TARGET_UNKNOWN"


class AccessTokenError(UnauthorizedError):
    """The access token has expired, or is not for this address. Ask for a new one."""

    code = "ACCESS_TOKEN_INVALID"


class TrafficTokenError(ForbiddenError):
    """Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is
    missing"""

    code = "TRAFFIC_TOKEN_MISSING"


class TrafficTokenWrongError(ForbiddenError):
    """Sandbox is secured with traffic access token. Provided token in header
    'e2b-traffic-access-token' is invalid"""

    code = "TRAFFIC_TOKEN_INVALID"


class OriginRefusedError(ForbiddenError):
    """The cookie opens this address for its own pages alone. From elsewhere, send the token as
    `X-Access-Token`."""

    code = "ORIGIN_REFUSED"


class TunnelRefusedError(InvalidError):
    """The gateway passes on HTTP requests and WebSockets, whose only transfer coding is chunked."""

    code = "TUNNEL_REFUSED"


class TooManyConnectionsError(UnavailableError):
    """This sandbox has as many open connections as it may. Close some, or try again shortly."""

    code = "TOO_MANY_CONNECTIONS"


class TargetNotRunningError(BadGatewayError):
    """The sandbox is not running. Start it first."""

    code = "SANDBOX_NOT_RUNNING"


class PortNotListeningError(BadGatewayError):
    """Nothing listens on this port of the sandbox. Start the program, and let it listen there."""

    code = "PORT_NOT_LISTENING"


class ProgramBrokeOffError(BadGatewayError):
    """The program closed the connection before it had answered. Its logs may tell why."""

    code = "PROGRAM_BROKE_OFF"


class ProgramAnswerError(BadGatewayError):
    """What the program answered is no HTTP/1.1. Its logs may tell why."""

    code = "PROGRAM_ANSWER_MALFORMED"


class ProgramTimeoutError(GatewayTimeoutError):
    """The program did not answer in time. Its logs may tell why."""

    code = "PROGRAM_TIMEOUT"
