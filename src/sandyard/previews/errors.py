"""What can go wrong with a preview, each with the code that callers rely on."""

from sandyard.kit.errors import ConflictError, InvalidError, NotFoundError, UnavailableError


class PreviewProjectNotFoundError(NotFoundError):
    """You have no project with this id. List your projects to find it."""

    code = "PREVIEW_PROJECT_NOT_FOUND"


class PreviewProjectArchivedError(ConflictError):
    """The project is archived and so read-only. Unarchive it first."""

    code = "PREVIEW_PROJECT_ARCHIVED"


class UnsafeFilePathError(InvalidError):
    """A file's path must be relative and stay inside the project."""

    code = "UNSAFE_FILE_PATH"

    def __init__(self, path: str) -> None:
        shown = path[:100].encode(errors="replace").decode()
        super().__init__(
            f"{shown!r} can't be kept: a path is relative, has no `.`, `..`, empty part, "
            "backslash or control character, at most 512 bytes, and 30 parts of 200 bytes.",
            details={"path": shown},
        )


class FileConflictError(InvalidError):
    """A path is both written and deleted, written twice, or a file and a folder at once."""

    code = "FILE_CONFLICT"


class FilesLimitError(InvalidError):
    """The project would have more files, or larger ones, than it may."""

    code = "FILES_LIMIT_EXCEEDED"


class FileBytesLimitError(ConflictError):
    """The files of all your projects would take more than your account may have. Delete some."""

    code = "FILE_BYTES_LIMIT_EXCEEDED"


class FilesVersionError(ConflictError):
    """The project's files have changed since the version that you expected. Read them, and try
    again."""

    code = "FILES_VERSION_CONFLICT"


class WrongEncodingError(InvalidError):
    """A file's content is not in its `encoding`: no base64, or half a character of a text."""

    code = "INVALID_FILE_ENCODING"


class PreviewsLimitError(ConflictError):
    """Your account has as many previews running as it may. Wait until one ends."""

    code = "PREVIEWS_LIMIT_EXCEEDED"


class PreviewBusyError(UnavailableError):
    """Other callers are making or changing this preview. Try again shortly."""

    code = "PREVIEW_BUSY"


class MigrationRefusedError(ConflictError):
    """The migration can't go on from here."""

    code = "PREVIEWS_MIGRATION_REFUSED"
