"""What can go wrong with a session, each with a stable code."""

from sandyard.kit.errors import ForbiddenError


class TerminalOriginError(ForbiddenError):
    """Pages of this origin may not open terminals. Add the origin to CORS_ORIGINS."""

    code = "TERMINAL_ORIGIN_REFUSED"
