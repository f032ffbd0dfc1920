"""What can go wrong with a running program, each with the code that callers rely on."""

import errno
import os
from collections.abc import Mapping, Sequence
from typing import Any

from sandyard.kit.errors import (
    ConflictError,
    InvalidError,
    NotFoundError,
    SandyardError,
    UnavailableError,
    UnsupportedError,
)


class InvalidRunIdError(InvalidError):
    """A run id is a kind, an id and an attempt, each of 1 to 64 letters, digits, - and _."""


class InvalidRepositoryError(InvalidError):
    """Send the `https://` address of a git repository without a user name, or a built-in
    template."""

    code = "INVALID_REPOSITORY_URL"


class UnsafePathError(InvalidError):
    """A file's path must be relative and stay inside the workspace."""

    def __init__(self, path: str) -> None:
        shown = path[:100].encode(errors="replace").decode()
        super().__init__(
            f"{shown!r} can't be written: a path must be relative, without `.`, `..`, empty parts, "
            "backslashes or NUL, and must not pass through a link.",
            details={"path": shown},
        )


class InvalidPathError(InvalidError):
    """A path must be valid text without NUL, of at most 4095 bytes."""

    def __init__(self, path: str) -> None:
        shown = path[:100].encode(errors="replace").decode()
        super().__init__(
            f"{shown!r} is not a path: it must be valid text without NUL, of 1 to 4095 bytes.",
            details={"path": shown},
        )


class FileMissingError(NotFoundError):
    """There is no such file or folder in the sandbox."""

    code = "FILE_NOT_FOUND"


class FileRefusedError(ConflictError):
    """The sandbox refused this: its user lacks the permission, or this kind of file does not
    support it."""


class TooManyFilesError(ConflictError):
    """There are too many files to list at once. List a subfolder, or use less depth."""


class StorageFullError(ConflictError):
    """The sandbox's storage is full. Remove something first."""


class InvalidArchiveError(InvalidError):
    """The tar archive is invalid or incomplete, or an entry would leave the folder."""


class OperationFailedError(ConflictError):
    """The sandbox could not complete this: its own programs ended the work, or its folders are
    nested too deeply or too large for its memory."""


class NotPackedError(ConflictError):
    """The files of the sandbox could not be packed: they are too large, or packing takes too long.
    Remove some first."""


class MemoryNotKeptError(ConflictError):
    """The processes of the sandbox can't be kept, so it goes on. Stop it without its memory, or end
    the processes that hold files which have been deleted, and try again."""


class CommandRefusedError(ConflictError):
    """The command can't be run: the sandbox has no such program, folder or user."""


class ProcessNotFoundError(NotFoundError):
    """There is no process with this id, or it ended long ago. List the processes to find it."""


class InputClosedError(ConflictError):
    """The process accepts no input: it was started without, has closed it, or has ended."""


class InputNotTakenError(ConflictError):
    """The process does not read its input. Part of the data may be waiting for it; send the rest
    when it reads again."""


class NotATerminalError(ConflictError):
    """The process has no terminal. Start it with one."""

    code = "NOT_A_TERMINAL"


class InvalidSignalError(InvalidError):
    """There is no signal with this number."""


class PortClosedError(ConflictError):
    """Nothing listens on this port of the sandbox."""


class FilesTooLargeError(InvalidError):
    """The files are larger than the available storage. Send less, or allow more."""


class RunNotFoundError(NotFoundError):
    """There is no run with this id, or it was removed."""


class SnapshotNotFoundError(NotFoundError):
    """There is no such snapshot here. It has expired, or its files are missing: restore them."""


class NotRunningError(ConflictError):
    """It is not running. Start it first."""


class StillRunningError(ConflictError):
    """It is still running. Stop it first."""


class AttemptEndedError(ConflictError):
    """This attempt has ended. Start a new one."""


class IsolationMissingError(UnavailableError):
    """Programs can't be isolated here: install bubblewrap, or set SANDBOX_ISOLATION=none."""


class LimitsMissingError(UnavailableError):
    """The configured limits of sandboxes can't be enforced: correct SANDBOX_CGROUP_ROOT or
    SANDBOX_VOLUME."""


class DiskFullError(UnavailableError):
    """The server's disk is nearly full: nothing can be started or stored now. Try again later; its
    operator has to free space."""

    def __init__(self, *, free_bytes: int, reserve_bytes: int) -> None:
        details = {"free_bytes": free_bytes, "reserve_bytes": reserve_bytes}
        super().__init__(retry_after=60, details=details)


class RuntimeUnavailableError(UnavailableError):
    """The runtime can't be reached, or its folder can't be read or written. Nothing was decided;
    try again shortly."""


class RecordBrokenError(RuntimeUnavailableError):
    """The record of this run can't be read, so its state is unknown. Restore its file, which the
    log names, or remove the run's folder."""

    code = "RUN_RECORD_BROKEN"


class AgentFailedError(ConflictError, RuntimeUnavailableError):
    """The sandbox could not do this: its agent was ended by its own programs, or lacks memory or
    processes. Try again."""


class SupervisorTimeoutError(UnavailableError):
    """The supervisor of this program does not respond in time. Try again shortly."""


class StartFailedError(ConflictError):
    """The program could not be started."""


class SecretsUnsupportedError(StartFailedError):
    """Secrets that are bound to hosts need an egress proxy on this server's machine: they work
    neither at E2B, in Kubernetes, nor without isolation. Set them as plain secrets there."""

    code = "BOUND_SECRETS_UNSUPPORTED"


class SecretsTooLargeError(StartFailedError):
    """The sandbox has too many bound secrets, or they are too long. Remove some."""

    code = "BOUND_SECRETS_TOO_LARGE"


class VolumesUnsupportedError(UnsupportedError):
    """Volumes need isolated sandboxes on this server's machine, with their own file systems and
    root if the server is root, or a cluster. At E2B there are none."""


class VolumeBusyError(StartFailedError):
    """Another sandbox still has a volume mounted, in a way that excludes this. Try again when it
    has ended."""


class VolumeFilesMissingError(StartFailedError):
    """The files of a volume are not on this node, or not in this cluster. Restore them from a
    backup."""


class VolumeTooSmallError(ConflictError):
    """The volume stores more than that. Remove files first, or choose a larger size."""


class CloneFailedError(StartFailedError):
    """The repository could not be cloned. Check that its address is right and public."""


class AddressRefusedError(CloneFailedError):
    """The repository's host has a private address. Use a public host."""

    code = "REPOSITORY_ADDRESS_REFUSED"


class EnvironmentMissingError(StartFailedError):
    """There is no such environment on this node. Import it, or use another."""


class EnvironmentInUseError(ConflictError):
    """A running machine uses this environment. Stop it first."""


class RestoreFailedError(StartFailedError):
    """The snapshot could not be restored. Start without it, or from another."""


class ProcfileMissingError(StartFailedError):
    """There is no Procfile at the top of the repository. Add one with a `web:` line."""


class WebLineMissingError(StartFailedError):
    """The Procfile has no `web:` line. Add one with the command that serves on $PORT."""


class ExitedAtOnceError(StartFailedError):
    """The program ended before it listened on $PORT. Its last log lines say more."""


class NotListeningError(StartFailedError):
    """The program did not listen on $PORT in time. Its `web:` line must serve on that port."""


class OverLimitError(StartFailedError):
    """The program exceeded its memory or storage before it listened. Allow it more."""

    code = "OVER_LIMIT_AT_START"


class StoppedWhileStartingError(StartFailedError):
    """It was stopped before it listened."""


class SupervisorLostError(StartFailedError):
    """The supervisor or its server was lost before the program listened. Start again."""


START_FAILURES: dict[str, type[StartFailedError]] = {
    kind.code: kind
    for kind in (
        StartFailedError,
        CloneFailedError,
        AddressRefusedError,
        EnvironmentMissingError,
        RestoreFailedError,
        ProcfileMissingError,
        WebLineMissingError,
        ExitedAtOnceError,
        NotListeningError,
        OverLimitError,
        SecretsTooLargeError,
        SecretsUnsupportedError,
        StoppedWhileStartingError,
        SupervisorLostError,
        VolumeBusyError,
        VolumeFilesMissingError,
    )
}


def start_failure(
    code: str | None, message: str, *, log_lines: Sequence[str] = ()
) -> SandyardError:
    """The error that a supervisor recorded, as it is raised in the server."""
    kind = START_FAILURES.get(code or "", StartFailedError)
    return kind(message or None, details={"log": list(log_lines)})


def exited_at_once(exit_code: int, log_lines: Sequence[str]) -> ExitedAtOnceError:
    return ExitedAtOnceError(
        f"The program ended with code {exit_code} before it listened on $PORT." + _tail(log_lines)
    )


def not_listening(timeout_sec: float, log_lines: Sequence[str]) -> NotListeningError:
    return NotListeningError(
        f"The program did not listen on $PORT within {timeout_sec:g} s. Its `web:` line "
        "must serve on that port." + _tail(log_lines)
    )


def _tail(log_lines: Sequence[str]) -> str:
    return " Its last lines:\n" + "\n".join(log_lines) if log_lines else ""


STORAGE_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSALS: dict[str, type[SandyardError]] = {
    kind.code: kind
    for kind in (
        CommandRefusedError,
        InputClosedError,
        InputNotTakenError,
        InvalidArchiveError,
        InvalidSignalError,
        MemoryNotKeptError,
        NotATerminalError,
        NotPackedError,
        OperationFailedError,
        PortClosedError,
        ProcessNotFoundError,
        SecretsUnsupportedError,
        TooManyFilesError,
    )
}
_AGENT_FAILED = frozenset({"FAILED", "AGENT_LOST"})
_ERRNOS: dict[int, type[SandyardError]] = {
    errno.ENOENT: FileMissingError,
    errno.ECONNREFUSED: PortClosedError,
    **dict.fromkeys(STORAGE_FULL, StorageFullError),
}


def refusal_of(message: Mapping[str, Any]) -> SandyardError | None:
    """What a machine refused by this message; None if it names no known refusal."""
    text = str(message.get("message", ""))[-300:]  # the error is at its end
    code, number = str(message.get("refused")), message.get("errno")
    if code in _AGENT_FAILED:
        return AgentFailedError(reason=text)
    if code == UnsafePathError.code:
        return UnsafePathError(text)
    if (kind := _REFUSALS.get(code)) is not None:
        return kind(f"{kind.__doc__} ({text})" if text else None)
    if not isinstance(number, int):
        return None
    if number in _ERRNOS:
        return _ERRNOS[number]()
    return FileRefusedError(f"The sandbox refused this: {os.strerror(number)}.")
