"""What every HTTP door shares: the error shape, its description, and bearer tokens."""

import hmac
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from sandyard.kit.errors import UnauthorizedError

DEVICE_KEY = "DeviceKey"
ACCOUNT_KEY = "AccountKey"
"""The names of the schemes that are no bearer tokens."""

RawHeaders = Sequence[tuple[bytes, bytes]]
"""Headers as the server gives them: names in lower case, repeated ones as often as they came."""


def values_of(headers: RawHeaders, name: bytes) -> list[bytes]:
    return [value for header, value in headers if header == name]


def client_address(request: Request, *, header: str | None) -> str:
    """Where a request comes from: the connection's other end, or what the nearest proxy wrote
    into its header."""
    if header is not None:
        sent = values_of(request.scope["headers"], header.lower().encode())
        if sent:
            return sent[-1].decode("latin-1").rpartition(",")[2].strip()[:64]
    return request.client.host if request.client else ""


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
    401: "The credential is missing or does not open this door",
    403: "Not yours",
    404: "No such thing",
    405: "The path does not take this method",
    409: "The present state does not allow it, or nothing is left",
    413: "The body is too large",
    429: "Too many requests",
    500: "A fault of ours",
    503: "An engine or the provider is away",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of these error answers, and of those that any call may give."""
    return {
        status: {"model": ErrorAnswer, "description": _MEANINGS[status]}
        for status in sorted({*statuses, 413, 500})
    }


def opened_by(scheme: str, parameters: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The OpenAPI description of a door that a token opens, and of headers that are read by hand.

    Described here instead of as dependencies, which FastAPI would solve anew for every request.
    """
    return {"security": [{scheme: []}], "parameters": list(parameters)}


def security_schemes(document: Mapping[str, Any]) -> dict[str, Any]:
    """A description of each scheme that the document's calls name: bearer, unless it is a key."""
    named = {
        scheme
        for path in document["paths"].values()
        for operation in path.values()
        for requirement in operation.get("security", ())
        for scheme in requirement
    }
    bearer = {"type": "http", "scheme": "bearer"}
    api_key = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
    keys = (DEVICE_KEY, ACCOUNT_KEY)
    return {scheme: api_key if scheme in keys else bearer for scheme in sorted(named)}


def checked_first(check: Callable[[Request], Awaitable[None]]) -> type[APIRoute]:
    """A kind of route that knows who calls before it reads anything of the body."""

    class CheckedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def checked(request: Request) -> Response:
                await check(request)
                return await handle(request)

            return checked

    return CheckedRoute


class BearerGuard:
    """Opens a door to the holders of its tokens; every token is compared, in constant time."""

    def __init__(self, accepted: Sequence[str]) -> None:
        self._accepted = [token.encode() for token in accepted]

    def check(self, request: Request) -> None:
        values = values_of(request.scope["headers"], b"authorization")
        scheme, _, token = values[0].partition(b" ") if len(values) == 1 else (b"", b"", b"")
        sent = token.strip()
        matches = [hmac.compare_digest(sent, accepted) for accepted in self._accepted]
        if scheme.lower() != b"bearer" or not any(matches):
            raise UnauthorizedError
