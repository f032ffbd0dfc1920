"""What can go wrong with a running program, each with the code that callers rely on."""

from collections.abc import Sequence

from sandyard.kit.errors import (
    ConflictError,
    InvalidError,
    NotFoundError,
    SandyardError,
    UnavailableError,
)


class InvalidOwnerError(InvalidError):
    """A kind, and an id and attempt of 1 to 64 letters, digits, - and _ are needed."""

    code = "INVALID_RUNTIME_OWNER"


class InvalidRepositoryError(InvalidError):
    """Give an `https://` address of a git repository without user name, or a built-in template."""

    code = "INVALID_REPOSITORY_URL"


class UnsafePathError(InvalidError):
    """A file's path must be relative and stay inside the workspace."""

    code = "UNSAFE_PATH"

    def __init__(self, path: str) -> None:
        shown = path[:100].encode(errors="replace").decode()
        super().__init__(
            f"{shown!r} can't be written: a path is relative, has no `.`, `..`, empty part, "
            "backslash or NUL, and passes through no link.",
            details={"path": shown},
        )


class FilesTooLargeError(InvalidError):
    """The files are larger than the storage that this may use. Send less, or allow more."""

    code = "FILES_TOO_LARGE"


class NotHeldError(NotFoundError):
    """The runtime holds nothing for this owner and attempt."""

    code = "NOT_HELD"


class SnapshotNotFoundError(NotFoundError):
    """There is no such snapshot. It may have expired; start without it."""

    code = "SNAPSHOT_NOT_FOUND"


class NotRunningError(ConflictError):
    """This is not running now. Start it first."""

    code = "NOT_RUNNING"


class StillRunningError(ConflictError):
    """This still runs. Stop it first."""

    code = "STILL_RUNNING"


class AttemptEndedError(ConflictError):
    """This attempt has come to its end. Start a new one."""

    code = "ATTEMPT_ENDED"


class IsolationMissingError(UnavailableError):
    """Programs can't be isolated here: install bubblewrap, or set SANDBOX_ISOLATION=none."""

    code = "ISOLATION_MISSING"


class SupervisorSilentError(UnavailableError):
    """The supervisor of this program does not answer in time. Try again shortly."""

    code = "SUPERVISOR_SILENT"


class StartFailedError(ConflictError):
    """The program could not be started."""

    code = "START_FAILED"


class CloneFailedError(StartFailedError):
    """The repository could not be cloned. Check that its address is right and public."""

    code = "CLONE_FAILED"


class AddressRefusedError(CloneFailedError):
    """The repository's host has a private address. Only public hosts are asked."""

    code = "REPOSITORY_ADDRESS_REFUSED"


class RestoreFailedError(StartFailedError):
    """The snapshot could not be restored. Start without it, or from another."""

    code = "RESTORE_FAILED"


class ProcfileMissingError(StartFailedError):
    """There is no Procfile at the top of the repository. Add one with a `web:` line."""

    code = "PROCFILE_MISSING"


class WebLineMissingError(StartFailedError):
    """The Procfile has no `web:` line. Add one with the command that serves on $PORT."""

    code = "WEB_LINE_MISSING"


class ExitedAtOnceError(StartFailedError):
    """The program ended before it listened on $PORT. Its last log lines tell more."""

    code = "EXITED_AT_ONCE"


class NotListeningError(StartFailedError):
    """The program did not listen on $PORT in time. Let its `web:` line serve on that port."""

    code = "NOT_LISTENING"


class OverLimitError(StartFailedError):
    """The program went over its memory or storage before it listened. Allow it more."""

    code = "OVER_LIMIT_AT_START"


class StoppedWhileStartingError(StartFailedError):
    """This was stopped before it listened."""

    code = "STOPPED_WHILE_STARTING"


class SupervisorLostError(StartFailedError):
    """The supervisor was lost before the program listened. Start again."""

    code = "SUPERVISOR_LOST"


START_FAILURES: dict[str, type[StartFailedError]] = {
    kind.code: kind
    for kind in (
        StartFailedError,
        CloneFailedError,
        AddressRefusedError,
        RestoreFailedError,
        ProcfileMissingError,
        WebLineMissingError,
        ExitedAtOnceError,
        NotListeningError,
        OverLimitError,
        StoppedWhileStartingError,
        SupervisorLostError,
    )
}


def start_failure(
    code: str | None, message: str, *, log_lines: Sequence[str] = ()
) -> SandyardError:
    """The error that a supervisor recorded, as it is raised in the server."""
    kind = START_FAILURES.get(code or "", StartFailedError)
    return kind(message or None, details={"log": list(log_lines)})
