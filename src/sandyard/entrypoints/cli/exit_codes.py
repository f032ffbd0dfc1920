"""What the commands that call a server exit with; docs/cli.md has the table."""

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
    return CallFailedError(" ".join([str(error), *getattr(error, "__notes__", ())]), code_of(error))


def code_of(error: "SandyardClientError") -> ExitCode:
    import sandyard_client as client

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
    ]
    return next((code for kind, code in codes if isinstance(error, kind)), ExitCode.FAILED)
