"""Exit codes of the commands that call a server; docs/cli.md has the table."""

from enum import IntEnum
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sandyard_client import SandyardClientError


class ExitCode(IntEnum):
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    CONFLICT = 5
    NONE_FREE = 6
    AWAY = 7
    RATE_LIMITED = 8
    EXEC_WAITED_IN_VAIN = 124
    EXEC_FAILED = 125
    EXEC_NOT_EXECUTABLE = 126
    EXEC_NOT_FOUND = 127


class CallFailedError(click.ClickException):
    """One line on stderr, and the exit code that says what kind of failure it was."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def call_failed(error: "SandyardClientError") -> CallFailedError:
    sentences = [str(error), *_details(error), *getattr(error, "__notes__", ())]
    return CallFailedError(" ".join(sentences), code_of(error))


def _details(error: "SandyardClientError") -> list[str]:
    """The server's details about its refusal, beyond the message."""
    details = getattr(error, "details", {})
    mistakes = [f"{each['field']}: {each['message']}" for each in details.get("mistakes", ())]
    known = ("possible_minutes", "limit", "in_use", "retry_after")
    numbers = [f"{name}={details[name]}" for name in known if details.get(name) is not None]
    return [f"[{'; '.join([*mistakes, *numbers])}]"] if mistakes or numbers else []


def code_of(error: "SandyardClientError") -> ExitCode:
    import sandyard_client as client

    if isinstance(error, client.LeaseLostError):
        is_missing = isinstance(error.__cause__, client.NotFoundError)
        return ExitCode.NOT_FOUND if is_missing else ExitCode.CONFLICT
    codes: list[tuple[type[Exception], ExitCode]] = [
        (client.NoSandboxesAvailableError, ExitCode.NONE_FREE),
        (client.NotFoundError, ExitCode.NOT_FOUND),
        (client.UnauthorizedError, ExitCode.DENIED),
        (client.ForbiddenError, ExitCode.DENIED),
        (client.ConflictError, ExitCode.CONFLICT),
        (client.RateLimitedError, ExitCode.RATE_LIMITED),
        (client.UnavailableError, ExitCode.AWAY),
        (client.ConnectionFailedError, ExitCode.AWAY),
        (client.ConfigurationError, ExitCode.USAGE),
        (client.InvalidError, ExitCode.USAGE),
    ]
    return next((code for kind, code in codes if isinstance(error, kind)), ExitCode.FAILED)
