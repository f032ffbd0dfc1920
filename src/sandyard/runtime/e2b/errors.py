"""How E2B may fail: a sandbox is gone, or E2B is unavailable. Never both."""

from sandyard.kit.errors import NotFoundError, SandyardError, UnavailableError
from sandyard.runtime.remote import sdk as kit


class E2bGoneError(NotFoundError):
    """E2B no longer has this sandbox."""

    code = "E2B_SANDBOX_GONE"


class E2bUnavailableError(UnavailableError):
    """E2B returned no valid response. Nothing was decided; try again shortly."""

    code = "E2B_UNAVAILABLE"


class E2bRateLimitedError(E2bUnavailableError):
    """E2B gets too many requests. Wait `retry_after` seconds."""

    code = "E2B_RATE_LIMITED"


class E2bKeyRefusedError(E2bUnavailableError):
    """E2B refuses this server's key. The operator must set a valid one."""

    code = "E2B_KEY_REFUSED"


class E2bRefusedError(E2bUnavailableError):
    """E2B refused the request. The operator finds the reason in the log."""

    code = "E2B_REFUSED"


class E2bNotMeasuredError(E2bUnavailableError):
    """E2B has not measured this sandbox yet. Try again shortly."""

    code = "E2B_NOT_MEASURED"


class E2bMissingError(E2bUnavailableError):
    """Sandboxes at E2B need its SDK. Install `sandyard[e2b]`, or run them locally."""

    code = "E2B_MISSING"


def translation(error: Exception) -> SandyardError:
    """The SDK's error as one of ours."""
    reason = kit.reason_of(error)
    match kit.trouble_of(error):
        case "gone":
            return E2bGoneError()
        case "rate_limited":
            return E2bRateLimitedError(retry_after=kit.retry_after(error), reason=reason)
        case "key_refused":
            return E2bKeyRefusedError(reason=reason)
        case "other":
            return E2bRefusedError(reason=reason)
        case _:
            return E2bUnavailableError(reason=reason)
