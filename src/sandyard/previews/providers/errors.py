"""How a provider of sandboxes may fail: the sandbox is gone, or there is trouble. Never both."""

from sandyard.kit.errors import NotFoundError, UnavailableError
from sandyard.kit.node import ElsewhereError


class SandboxGoneError(NotFoundError):
    """The preview's sandbox has ended. Sync the project to get a new one."""

    code = "PREVIEW_GONE"


class PreviewElsewhereError(ElsewhereError):
    """Another node runs or creates this preview. Call the server there; nothing was changed."""

    code = "PREVIEW_ELSEWHERE"


class ProviderTroubleError(UnavailableError):
    """The preview provider returned no valid response. Nothing was decided; try again shortly."""

    code = "PREVIEW_PROVIDER_UNAVAILABLE"
    made_nothing = False
    """Whether a create that ends so has surely made no sandbox."""


class ProviderRateLimitedError(ProviderTroubleError):
    """The preview provider gets too many requests. Wait `retry_after` seconds."""

    code = "PREVIEW_PROVIDER_RATE_LIMITED"
    made_nothing = True


class ProviderCanNotStartError(ProviderTroubleError):
    """The preview provider can't start a sandbox now."""

    code = "PREVIEW_PROVIDER_CAN_NOT_START"
    made_nothing = True


class ProviderTimeoutError(ProviderTroubleError):
    """The preview provider does not respond in time. Try again shortly."""

    code = "PREVIEW_PROVIDER_TIMEOUT"


class ProviderKeyRefusedError(ProviderTroubleError):
    """The preview provider refuses this server's key. The operator must set a valid one."""

    code = "PREVIEW_PROVIDER_KEY_REFUSED"
    made_nothing = True


class ProviderFailedError(ProviderTroubleError):
    """The preview provider returned an error. Try again shortly."""

    code = "PREVIEW_PROVIDER_FAILED"


class ProviderUnreachableError(ProviderTroubleError):
    """The preview provider can't be reached, or closed the connection. Try again shortly."""

    code = "PREVIEW_PROVIDER_UNREACHABLE"
