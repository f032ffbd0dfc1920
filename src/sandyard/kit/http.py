"""What every HTTP endpoint shares: the error shape, its description, and bearer tokens."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field
from starlette.requests import Request

from sandyard.kit.errors import (
    BodyTooLargeError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    MethodNotAllowedError,
    NotFoundError,
    RangeNotSatisfiableError,
    RateLimitedError,
    RepeatedCredentialError,
    SandyardError,
    UnauthorizedError,
    UnavailableError,
)
from sandyard.kit.rotation import as_secret

SCHEMES = "x-security-schemes"
"""Where an operation carries the definitions of its schemes until the document collects them."""

RawHeaders = Sequence[tuple[bytes, bytes]]
"""Headers as the server gives them: names in lower case, repeated ones as often as they came."""


def values_of(headers: RawHeaders, name: bytes) -> list[bytes]:
    return [value for header, value in headers if header == name]


class ErrorBody(BaseModel):
    code: str = Field(description="Stable; programs may rely on it")
    message: str = Field(description="What happened and what to do next")
    request_id: str
    retry_after: int | None = Field(None, description="Seconds; only where waiting helps")
    details: dict[str, Any] | None = None


class ErrorAnswer(BaseModel):
    error: ErrorBody


_MEANINGS = {
    400: "A header, parameter or body is malformed; the code says which",
    401: "The credential is missing or not valid for this endpoint",
    403: "Not yours",
    404: "No such thing",
    405: "The path does not take this method",
    409: "The present state does not allow it, or nothing is left",
    413: "The body is too large",
    416: "The range has no byte of the file",
    429: "Too many requests",
    500: "A fault of ours",
    503: "An engine or the provider is away",
}


_EXAMPLES: Mapping[int, SandyardError] = {
    400: InvalidError(),
    401: UnauthorizedError(),
    403: ForbiddenError(),
    404: NotFoundError(),
    405: MethodNotAllowedError(),
    409: ConflictError(),
    413: BodyTooLargeError(),
    416: RangeNotSatisfiableError(),
    429: RateLimitedError(retry_after=12),
    500: SandyardError(),
    503: UnavailableError(),
}
_ERROR_SCHEMA = {"$ref": f"#/components/schemas/{ErrorAnswer.__name__}"}


def _error_content(status: int) -> dict[str, Any]:
    return {"application/json": {"schema": _ERROR_SCHEMA, "example": _example(_EXAMPLES[status])}}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of these error answers, and of those that any call may give.

    They name the schema, which the document adds. A model would be prepared by FastAPI for each
    status of each route, a tenth of a start.
    """
    return {
        status: {"description": _MEANINGS[status], "content": _error_content(status)}
        for status in sorted({*statuses, 400, 413, 500})
    }


def _example(error: SandyardError) -> dict[str, Any]:
    shown = {"code": error.code, "message": error.message, "request_id": "req_0f3a9c5b7d1e2468"}
    waiting = {} if error.retry_after is None else {"retry_after": error.retry_after}
    return {"error": shown | waiting}


@dataclass(frozen=True, slots=True)
class SecurityScheme:
    """A kind of credential, as the API's document describes it."""

    name: str
    where: str
    """Where a person gets such a credential."""
    header: str | None = None
    """The header that carries it; None for a bearer token."""

    def definition(self) -> dict[str, str]:
        if self.header is None:
            return {"type": "http", "scheme": "bearer", "description": self.where}
        return {
            "type": "apiKey",
            "in": "header",
            "name": self.header,
            "description": self.where,
        }


def secured_by(
    *schemes: SecurityScheme, parameters: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The security requirement of an endpoint, any one of the schemes, and its headers that are
    read by hand, for `openapi_extra`.

    Described here instead of as dependencies, which FastAPI would solve anew for every request.
    """
    return {
        "security": [{scheme.name: []} for scheme in schemes],
        "parameters": list(parameters),
        SCHEMES: {scheme.name: scheme.definition() for scheme in schemes},
    }


@dataclass(frozen=True, slots=True)
class Credential:
    """A bearer token, or a key from `X-API-Key`; no text if it is of another scheme."""

    text: str
    is_key: bool


def find_credential(headers: RawHeaders, *, key_wins: bool = False) -> Credential | None:
    """The one that was sent, in either header; RepeatedCredentialError if there are more, but for
    an `Authorization` beside a key that wins: it may be meant for a proxy."""
    bearers, keys = values_of(headers, b"authorization"), values_of(headers, b"x-api-key")
    if key_wins and keys:
        bearers = []
    if len(bearers) + len(keys) > 1:
        raise RepeatedCredentialError
    if keys:
        return Credential(keys[0].decode("latin-1"), is_key=True)
    if not bearers:
        return None
    scheme, _, token = bearers[0].decode("latin-1").partition(" ")
    return Credential(token.strip() if scheme.lower() == "bearer" else "", is_key=False)


async def refuse_body(request: Request) -> None:
    """For calls of weight that take no body: one may hold a `dry_run` that would not be read."""
    if await request.body():
        raise InvalidError("Send no body; this call takes query parameters. Nothing was changed.")


@asynccontextmanager
async def noticing_disconnect(request: Request, leave: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `leave` if the caller closes the connection during the block. The body is lost."""

    async def notice() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        leave()

    noticing = asyncio.create_task(notice())
    try:
        yield
    finally:
        noticing.cancel()
        await asyncio.gather(noticing, return_exceptions=True)


class BearerGuard:
    """Lets the holders of its tokens in; every token is compared, in constant time."""

    def __init__(self, accepted: Sequence[str]) -> None:
        self._accepted = as_secret(accepted)

    async def require(self, request: Request) -> None:
        values = values_of(request.scope["headers"], b"authorization")
        if len(values) > 1:
            raise RepeatedCredentialError
        scheme, _, token = values[0].partition(b" ") if values else (b"", b"", b"")
        sent = token.strip()
        if scheme.lower() != b"bearer":
            raise UnauthorizedError
        if not self._accepted.accepts(sent) and not await self._accepted.accepts_newest(sent):
            raise UnauthorizedError
