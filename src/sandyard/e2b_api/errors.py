"""What E2B's API refuses that the Platform does not, each with a stable code, and the status of
each error in this API."""

from collections.abc import Mapping

from sandyard.kit.errors import (
    BadGatewayError,
    ConflictError,
    ExhaustedError,
    ForbiddenError,
    GatewayTimeoutError,
    InvalidError,
    NotFoundError,
    SandyardError,
    UnauthorizedError,
)
from sandyard.kit.http.error_statuses import STATUS
from sandyard.runtime.errors import NotRunningError, PortClosedError, StorageFullError


class SandboxNotFoundError(NotFoundError, prefix="E2B_"):
    """There is no such sandbox, or it has timed out. List yours to find it."""


class SandboxGoneError(BadGatewayError):
    """The sandbox was not found: it was killed, is paused, or its time is over."""

    code = "E2B_SANDBOX_NOT_RUNNING"


class AlreadyPausedError(ConflictError, prefix="E2B_"):
    """The sandbox is already paused. Connect to it to resume it."""


class RulesUnsupportedError(ConflictError):
    """Only a sandbox that was created with rules that set headers can have others while it runs."""

    code = "E2B_RULES_NEED_A_START"


class AccessTokenMissingError(UnauthorizedError):
    """The sandbox's access token or the signature is missing, wrong or expired. Connect again."""

    code = "E2B_ACCESS_TOKEN"


class NoSuchUserError(UnauthorizedError, prefix="E2B_"):
    """There is no such user in the sandbox. Use `user`, or name none."""


class NotOfferedError(ForbiddenError, prefix="E2B_"):
    """This server does not offer this part of E2B's API; docs/e2b.md lists the differences."""


class InvalidRequestError(InvalidError):
    """The body must be a JSON object, as E2B's API describes it."""

    code = "E2B_INVALID_BODY"


class FolderExistsError(ConflictError, prefix="E2B_"):
    """The folder already exists."""


class BuildNotFoundError(NotFoundError, prefix="E2B_"):
    """There is no such build: it ended with the server, or belongs to another account."""


class BuildRefusedError(InvalidError, prefix="E2B_"):
    """This recipe can't be built here; docs/e2b.md lists what can."""


class BuildFailedError(InvalidError, prefix="E2B_"):
    """A step of the build failed."""


class LinkOverError(UnauthorizedError, prefix="E2B_"):
    """signature is already expired"""


class DeadlineExceededError(GatewayTimeoutError, prefix="E2B_"):
    """The caller's deadline has passed."""


Statuses = Mapping[type[SandyardError], int]

STATUSES: Statuses = {
    **STATUS,
    NotOfferedError: 501,
    StorageFullError: 507,
    SandboxGoneError: 502,
    NotRunningError: 502,
    PortClosedError: 502,
    ExhaustedError: 429,
}
"""Those of all APIs, and where E2B's differ from them."""


def message_of(error: SandyardError) -> str:
    """SDKs recognize two errors by their messages: it does not run, and a port is closed."""
    if isinstance(error, SandboxGoneError | NotRunningError):
        return "The sandbox was not found"
    is_closed = isinstance(error.__cause__, PortClosedError)
    return "The sandbox is running but port is not open" if is_closed else error.message
