"""What can go wrong with a preview, each with the code that callers rely on."""

from sandyard.kit.errors import ConflictError, InvalidError, NotFoundError, UnavailableError


class PreviewProjectNotFoundError(NotFoundError):
    """You have no project with this id. List your projects to find it."""

    code = "PREVIEW_PROJECT_NOT_FOUND"


class PreviewProjectArchivedError(ConflictError):
    """The project is archived and therefore read-only. Unarchive it first."""

    code = "PREVIEW_PROJECT_ARCHIVED"


class UnsafeFilePathError(InvalidError):
    """A file's path must be relative and stay inside the project."""

    code = "UNSAFE_FILE_PATH"

    def __init__(self, path: str) -> None:
        shown = path[:100].encode(errors="replace").decode()
        super().__init__(
            f"{shown!r} is not a valid path: it must be relative, without `.`, `..`, empty parts, "
            "backslashes or control characters, at most 512 bytes in 30 parts of 200 bytes.",
            details={"path": shown},
        )


class FileConflictError(InvalidError):
    """A path is both written and deleted, written twice, or both a file and a folder."""

    code = "FILE_CONFLICT"


class FilesLimitError(InvalidError):
    """The project would exceed its limit of files or bytes."""

    code = "FILES_LIMIT_EXCEEDED"


class FileBytesLimitError(ConflictError):
    """The files of all your projects would exceed your account's limit. Delete some."""

    code = "FILE_BYTES_LIMIT_EXCEEDED"


class FilesVersionError(ConflictError):
    """The project's files have changed since the expected version. Read them, and try again."""

    code = "FILES_VERSION_CONFLICT"


class WrongEncodingError(InvalidError):
    """A file's content does not match its `encoding`: invalid base64 or invalid UTF-8."""

    code = "INVALID_FILE_ENCODING"


class PreviewsLimitError(ConflictError):
    """Your account is at its limit of running previews. Wait until one ends."""

    code = "PREVIEWS_LIMIT_EXCEEDED"


class PreviewBusyError(UnavailableError):
    """Other callers are creating or changing this preview. Try again shortly."""

    code = "PREVIEW_BUSY"


class MigrationRefusedError(ConflictError):
    """The migration can't continue from this state."""

    code = "PREVIEWS_MIGRATION_REFUSED"
