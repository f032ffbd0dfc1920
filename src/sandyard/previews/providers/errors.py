"""How a provider of sandboxes may fail: the sandbox is gone, or there is trouble. Never both."""

from sandyard.kit.errors import NotFoundError, UnavailableError
from sandyard.kit.node import ElsewhereError


class SandboxGoneError(NotFoundError):
    """The preview's sandbox has ended. Sync the project to get a new one."""

    code = "PREVIEW_GONE"


class PreviewElsewhereError(ElsewhereError):
    """Another node runs this preview, or is making it. Ask the server there; nothing was
    changed."""

    code = "PREVIEW_ELSEWHERE"


class ProviderTroubleError(UnavailableError):
    """The previews' provider gives no usable answer. Nothing was decided; try again shortly."""

    code = "PREVIEW_PROVIDER_UNAVAILABLE"
    made_nothing = False
    """Whether a create that ends so has surely made no sandbox."""


class ProviderRateLimitedError(ProviderTroubleError):
    """The previews' provider is asked too often. Wait `retry_after` seconds."""

    code = "PREVIEW_PROVIDER_RATE_LIMITED"
    made_nothing = True


class ProviderCanNotStartError(ProviderTroubleError):
    """The previews' provider can't start a sandbox now."""

    code = "PREVIEW_PROVIDER_CAN_NOT_START"
    made_nothing = True


class ProviderTimeoutError(ProviderTroubleError):
    """The previews' provider does not answer in time. Try again shortly."""

    code = "PREVIEW_PROVIDER_TIMEOUT"


class ProviderKeyRefusedError(ProviderTroubleError):
    """The previews' provider refuses this server's key. Its operator must set a valid one."""

    code = "PREVIEW_PROVIDER_KEY_REFUSED"
    made_nothing = True


class ProviderFailedError(ProviderTroubleError):
    """The previews' provider answers with an error of its own. Try again shortly."""

    code = "PREVIEW_PROVIDER_FAILED"


class ProviderUnreachableError(ProviderTroubleError):
    """The previews' provider can't be reached, or broke the call off. Try again shortly."""

    code = "PREVIEW_PROVIDER_UNREACHABLE"


class ProviderMissingError(ProviderTroubleError):
    """Previews on E2B need its SDK. Install `sandyard[e2b]`, or show previews locally."""

    code = "PREVIEW_PROVIDER_MISSING"
    made_nothing = True
