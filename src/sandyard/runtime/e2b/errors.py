"""How E2B may fail: a sandbox is gone, or E2B is unavailable. Never both."""

from sandyard.kit.errors import NotFoundError, SandyardError, UnavailableError
from sandyard.runtime.remote.errors import CallError


class E2bGoneError(NotFoundError):
    """E2B no longer has this sandbox."""

    code = "E2B_SANDBOX_GONE"


class E2bUnavailableError(UnavailableError):
    """E2B returned no valid response. Nothing was decided; try again shortly."""


class E2bRateLimitedError(E2bUnavailableError):
    """E2B gets too many requests. Wait `retry_after` seconds."""


class E2bKeyRefusedError(E2bUnavailableError):
    """E2B refuses this server's key. The operator must set a valid one."""


class E2bRefusedError(E2bUnavailableError):
    """E2B refused the request. The operator finds the reason in the log."""


class E2bNotMeasuredError(E2bUnavailableError):
    """E2B has not measured this sandbox yet. Try again shortly."""


def translation(error: CallError) -> SandyardError:
    """A failed call to E2B, or into a machine there, as one of our errors."""
    match error.trouble:
        case "gone":
            return E2bGoneError()
        case "rate_limited":
            return E2bRateLimitedError(retry_after=error.retry_after, reason=error.reason)
        case "key_refused":
            return E2bKeyRefusedError(reason=error.reason)
        case "other" | "not_found":
            return E2bRefusedError(reason=error.reason)
        case _:
            return E2bUnavailableError(reason=error.reason)
