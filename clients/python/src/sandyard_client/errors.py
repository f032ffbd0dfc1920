"""Exceptions: the server's error codes, and errors on the client's side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class SandyardClientError(Exception):
    """Base of everything that this package raises by itself."""


class ConfigurationError(SandyardClientError):
    """An address or a credential is missing, or can't be used."""


class ConnectionFailedError(SandyardClientError):
    """No answer came, also after retries. Whether the call was carried out is not known, unless
    `was_sent` says that it never reached a server."""

    def __init__(self, message: str, *, was_sent: bool = True) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class UncertainOutcomeError(SandyardClientError):
    """The answer was lost, and the call is not one that may be repeated."""


class UnexpectedAnswerError(SandyardClientError):
    """What answered is not a Sandyard server."""


class LeaseLostError(SandyardClientError):
    """The lease has ended before it was given up."""


class CommandFailedError(SandyardClientError):
    """A command ended with another exit code than 0."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class BufferUnusableError(SandyardClientError):
    """The file of the buffer can't be opened, read or written, or is damaged. It is left as it
    is: move it away to go on with a new one."""


class BufferFullError(SandyardClientError):
    """The readings could be neither buffered nor sent; `readings` are those, with their ids. Send
    them again later: the ids see to it that none is stored twice."""

    def __init__(self, message: str, readings: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(message)
        self.readings = readings


@dataclass
class ApiError(SandyardClientError):
    """The server refused; `code` is stable and may be relied on."""

    status: int
    code: str
    message: str
    request_id: str | None = None
    retry_after: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    may_be_done: bool = False
    """Whether an earlier attempt of the same call was sent and its response lost."""

    def __str__(self) -> str:
        where = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.code}: {self.message}{where}"

    __hash__ = Exception.__hash__


class InvalidError(ApiError):
    """400, 413 and the like: the same call will never be taken."""


class UnauthorizedError(ApiError):
    """401: the credential is missing, wrong, or for another endpoint."""


class ForbiddenError(ApiError):
    """403: not yours."""


class NotFoundError(ApiError):
    """404."""


class ConflictError(ApiError):
    """409: the present state does not allow it."""


class NoSandboxesAvailableError(ConflictError):
    """409 `NO_SANDBOXES_AVAILABLE`: none was free, also after waiting."""


class RateLimitedError(ApiError):
    """429, after retries."""


class UnavailableError(ApiError):
    """5xx, after retries: an engine or a provider is away. It may or may not have been done."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    429: RateLimitedError,
}
_BY_CODE: Mapping[str, type[ApiError]] = {"NO_SANDBOXES_AVAILABLE": NoSandboxesAvailableError}


def error_class(status: int, code: str) -> type[ApiError]:
    if code in _BY_CODE:
        return _BY_CODE[code]
    return _BY_STATUS.get(status, UnavailableError if status >= 500 else InvalidError)
