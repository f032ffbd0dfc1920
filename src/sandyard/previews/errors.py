"""What can go wrong with a preview, each with the code that callers rely on."""

from sandyard.kit.errors import (
    ConflictError,
    InvalidError,
    NotFoundError,
    RateLimitedError,
    UnavailableError,
    UnsupportedError,
)
from sandyard.kit.node import ElsewhereError


class PreviewProjectNotFoundError(NotFoundError):
    """You have no project with this id. List your projects to find it."""


class PreviewProjectArchivedError(ConflictError):
    """The project is archived and therefore read-only. Unarchive it first."""


class UnsafeFilePathError(InvalidError):
    """A file's path must be relative and stay inside the project."""

    def __init__(self, path: str) -> None:
        shown = path[:100].encode(errors="replace").decode()
        super().__init__(
            f"{shown!r} is not a valid path: it must be relative, without `.`, `..`, empty parts, "
            "backslashes or control characters, at most 512 bytes in 30 parts of 200 bytes.",
            details={"path": shown},
        )


class FileConflictError(InvalidError):
    """A path is both written and deleted, written twice, or both a file and a folder."""


class FilesLimitError(InvalidError):
    """The project would exceed its limit of files or bytes."""

    code = "FILES_LIMIT_EXCEEDED"


class FileBytesLimitError(ConflictError):
    """The files of all your projects, with those of earlier versions, would exceed your account's
    limit. Delete projects, or earlier versions."""

    code = "FILE_BYTES_LIMIT_EXCEEDED"


class FilesVersionError(ConflictError):
    """The project's files have changed since the expected version. Read them, and try again."""

    code = "FILES_VERSION_CONFLICT"


class VersionNotFoundError(NotFoundError):
    """The project has no such version, or it is no longer kept. List the versions to find one."""


class NotPublishedError(NotFoundError):
    """Nothing is published here."""


class PublishedPathError(InvalidError):
    """The version has no files below `root`, or no file `fallback` there."""


class PublishingBusyError(ConflictError):
    """A version of this project is being built or started. Wait until it is published."""

    code = "PUBLISHING_BUSY"


class DomainUnprovenError(ConflictError):
    """The host does not serve the project's token. Let it answer `details.url` with `details.token`
    alone, then call again."""


class DomainTakenError(ConflictError):
    """Another project is published at this host. Its owner can remove it there."""


class DomainRefusedError(InvalidError):
    """The host must be a full name in small letters, such as shop.example.org, and not one of this
    server's own."""


class DomainsLimitError(ConflictError):
    """The project is published at too many hosts. Remove one first."""

    code = "DOMAINS_LIMIT_EXCEEDED"


class ArchiveError(InvalidError):
    """The body is not a valid tar archive of files and folders. Send it without compression."""

    code = "INVALID_FILES_ARCHIVE"


class WrongEncodingError(InvalidError):
    """A file's content does not match its `encoding`: invalid base64 or invalid UTF-8."""

    code = "INVALID_FILE_ENCODING"


class PreviewsLimitError(ConflictError):
    """Your account is at its limit of running previews. Wait until one ends."""

    code = "PREVIEWS_LIMIT_EXCEEDED"


class PreviewBusyError(UnavailableError):
    """Other callers are creating or changing this preview. Try again shortly."""


class MigrationRefusedError(ConflictError):
    """The migration can't continue from this state."""

    code = "PREVIEWS_MIGRATION_REFUSED"


class SandboxGoneError(NotFoundError):
    """The preview's sandbox has ended. Sync the project to get a new one."""

    code = "PREVIEW_GONE"

    def __init__(self, message: str | None = None, *, reason: str = "") -> None:
        """`reason` is why it has ended, if that is known."""
        super().__init__(message)
        self.reason = reason


class PreviewElsewhereError(ElsewhereError):
    """Another node runs or creates this preview. Call the server there; nothing was changed."""


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


class PreviewNotRunningError(ConflictError):
    """The preview does not run. Sync the project first."""


class LooksLimitError(RateLimitedError):
    """A browser already looks at a preview of yours. Wait until it has."""

    code = "LOOKS_LIMIT_EXCEEDED"


class BrowserMissingError(UnsupportedError):
    """This server has no browser to look with. Its operator can install Chromium, or name it by
    CHROMIUM."""


class BrowserFailedError(UnavailableError):
    """The browser did not start, or ended. Try again shortly."""
