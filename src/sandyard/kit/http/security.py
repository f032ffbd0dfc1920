"""Requests of all endpoints: their headers, and their credentials with the OpenAPI description."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from sandyard.kit.errors import InvalidError, RepeatedCredentialError, UnauthorizedError
from sandyard.kit.rotation import as_secret

RawHeaders = Sequence[tuple[bytes, bytes]]
"""Headers as the server provides them: lower-case names, repeated headers repeated."""
SCHEMES = "x-security-schemes"
"""The operation key that holds the definitions of its schemes until the document collects them."""


def values_of(headers: RawHeaders, name: bytes) -> list[bytes]:
    return [value for header, value in headers if header == name]


async def refuse_body(request: Request) -> None:
    """For important calls without a body: a body could contain a `dry_run` that would be
    ignored."""
    if await request.body():
        raise InvalidError("Send no body: this call takes query parameters. Nothing was changed.")


@asynccontextmanager
async def noticing_disconnect(request: Request, leave: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `leave` if the client disconnects during the block. The request body is lost."""

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


@dataclass(frozen=True, slots=True)
class SecurityScheme:
    """A kind of credential, as described in OpenAPI."""

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
    """The `openapi_extra` of an endpoint: its security requirement (any one of the schemes), and
    the headers that it reads itself.

    Described here rather than as dependencies, which FastAPI would resolve for every request.
    """
    return {
        "security": [{scheme.name: []} for scheme in schemes],
        "parameters": list(parameters),
        SCHEMES: {scheme.name: scheme.definition() for scheme in schemes},
    }


@dataclass(frozen=True, slots=True)
class Credential:
    """A bearer token, or a key from `X-API-Key`; no text if the scheme is a different one."""

    text: str
    is_key: bool


def find_credential(headers: RawHeaders, *, key_wins: bool = False) -> Credential | None:
    """The credential sent in either header; RepeatedCredentialError if there is more than one,
    except for an `Authorization` beside a key that wins: it may be meant for a proxy."""
    bearers, keys = values_of(headers, b"authorization"), values_of(headers, b"x-api-key")
    if key_wins and keys:
        bearers = []
    if len(bearers) + len(keys) > 1:
        raise RepeatedCredentialError
    if keys:
        return Credential(keys[0].decode("latin-1"), is_key=True)
    if not bearers:
        return None
    return Credential((_bearer_of(bearers[0]) or b"").decode("latin-1"), is_key=False)


def bearer_token(request: Request) -> bytes:
    """The request's bearer token. Raises UnauthorizedError if it has none."""
    values = values_of(request.scope["headers"], b"authorization")
    if len(values) > 1:
        raise RepeatedCredentialError
    token = _bearer_of(values[0]) if values else None
    if token is None:
        raise UnauthorizedError
    return token


def _bearer_of(value: bytes) -> bytes | None:
    scheme, _, token = value.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else None


class BearerGuard:
    """Admits holders of its tokens; compares every token, in constant time."""

    def __init__(self, accepted: Sequence[str]) -> None:
        self._accepted = as_secret(accepted)

    async def require(self, request: Request) -> None:
        sent = bearer_token(request)
        if not self._accepted.accepts(sent) and not await self._accepted.accepts_newest(sent):
            raise UnauthorizedError
