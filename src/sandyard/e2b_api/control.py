"""The control API: one router for the endpoints of all rooms."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from sandyard.e2b_api.envd.connect import json_response
from sandyard.e2b_api.envd.paths import path_of
from sandyard.e2b_api.errors import NotOfferedError
from sandyard.kit.errors import NotFoundError
from sandyard.platform.access.principal import Principal, Scope

Handler = Callable[[Request, Principal], Awaitable[Response | None]]
"""None is a response without content."""
_NOT_OFFERED = frozenset({"volumes", "secrets", "api-keys", "access-tokens", "nodes", "admin"})


class Guard(Protocol):
    async def require(self, request: Request, scope: Scope) -> Principal: ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    handler: Handler
    scope: Scope


class ControlApi:
    """An ASGI application. Raises the errors of its endpoints, and NotOfferedError for other parts
    of E2B's API."""

    def __init__(
        self, guard: Guard, endpoints: Sequence[Endpoint], public: Sequence[Route] = ()
    ) -> None:
        """`public` routes need no credential."""
        self._guard = guard
        routes = [
            Route(each.path, self._guarded(each), methods=[each.method]) for each in endpoints
        ]
        own = [Route("/health", _health), *public, *routes]
        self._router = Router(own, redirect_slashes=False, default=self._refuse)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await self._router({**scope, "app": self}, receive, send)

    def _guarded(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def call(request: Request) -> Response:
            principal = await self._guard.require(request, endpoint.scope)
            return await endpoint.handler(request, principal) or Response(status_code=204)

        return call

    async def _refuse(self, scope: AsgiScope, receive: Receive, _send: Send) -> None:
        await self._guard.require(Request(scope, receive), Scope.READ)
        first = path_of(scope).split("/")[1]
        raise NotOfferedError if first in _NOT_OFFERED else NotFoundError


async def _health(_request: Request) -> Response:
    return json_response({"status": "ok"})


def page_headers(following: str | None) -> dict[str, str]:
    return {"X-Next-Token": following} if following else {}
