"""Endpoints that share a security requirement. The busiest are direct routes, which the outermost
middleware serves."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partialmethod
from typing import Any, Protocol, TypeVar, cast

from fastapi import APIRouter
from fastapi.exceptions import HTTPException, RequestValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from sandyard.kit.http.idempotency import PARAMETER, IdempotentCalls
from sandyard.kit.http.on_demand import OnDemandRoute
from sandyard.kit.http.schemas import errors
from sandyard.kit.http.security import values_of

Handler = TypeVar("Handler", bound=Callable[..., Any])
Check = Callable[[Request], Awaitable[object]]
Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
Once = Callable[[Endpoint, str], Endpoint]
"""Makes an endpoint of this name run once for each key."""


class DirectRoute(OnDemandRoute):
    """A route whose endpoint takes a request and returns a response, as in Starlette.

    OpenAPI describes it like any other. Nothing is injected, validated or converted, so FastAPI has
    no work to do per call.
    """

    def get_route_handler(self) -> Endpoint:
        return cast("Endpoint", self.endpoint)


class JsonResponse(Response):
    """Pre-encoded JSON. Headers are built by hand: they are half the cost of a call."""

    def __init__(self, body: bytes, status_code: int = 200) -> None:
        self.status_code = status_code
        self.body = body
        self.background = None
        self.raw_headers = [
            (b"content-length", b"%d" % len(body)),
            (b"content-type", b"application/json"),
        ]


class DirectRoutes:
    """Finds and runs direct routes; an ASGI application for the requests that `matches` selects."""

    def __init__(self, routes: Iterable[BaseRoute], *, with_origin: bool) -> None:
        """`with_origin`: also serve calls from scripts on web pages."""
        self._with_origin = with_origin
        direct = [route for route in routes if isinstance(route, DirectRoute)]
        self._by_path = {
            (method, route.path): route
            for route in direct
            if not route.param_convertors
            for method in route.methods or ()
        }
        self._by_pattern = [route for route in direct if route.param_convertors]

    def matches(self, scope: Scope) -> bool:
        """Whether this is a call of a direct route; sets the scope's `route`.

        Calls with a query string take the ordinary path, which refuses it: direct routes have no
        query parameters.
        """
        if scope["query_string"] or scope.get("root_path"):
            return False
        if not self._with_origin and values_of(scope["headers"], b"origin"):
            return False
        route = self._by_path.get((scope["method"], scope["path"])) or self._match(scope)
        scope["route"] = route
        return route is not None

    def _match(self, scope: Scope) -> DirectRoute | None:
        for route in self._by_pattern:
            found = scope["method"] in (route.methods or ()) and route.path_regex.match(
                scope["path"]
            )
            if found:
                scope["path_params"] = found.groupdict()
                return route
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response: Response = await scope["route"].endpoint(request)
        await response(scope, receive, send)


@dataclass(frozen=True, slots=True)
class Idempotency:
    """The idempotent calls of a router; `scope_of` gives the scope of keys by the check's
    result."""

    calls: IdempotentCalls
    scope_of: Callable[[Any], str]

    def of(self, *, finds_made: bool) -> Once:
        def once(endpoint: Endpoint, name: str) -> Endpoint:
            async def answer(request: Request) -> Response:
                scope = self.scope_of(request.state.caller)
                return await self.calls.answer(
                    request,
                    endpoint,
                    scope=scope,
                    operation=name,
                    finds_made=finds_made,
                    refusals=(HTTPException, RequestValidationError),
                )

            return answer

        return once


class Adding(Protocol):
    """Adds an endpoint; a decorator."""

    def __call__(self, handler: Handler, /) -> Handler: ...


class GuardedRoutes:
    """Adds endpoints to its router, each behind the same check.

    The check authenticates the caller before the body is read; handlers get its result from
    `caller_of`. A handler's name is its operation id in OpenAPI.
    """

    def __init__(
        self,
        *,
        prefix: str,
        tag: str,
        check: Check,
        security: Mapping[str, Any],
        statuses: tuple[int, ...] = (401, 503),
        idempotency: "Idempotency | None" = None,
    ) -> None:
        """`security` is a security requirement from `secured_by`; `statuses` are the errors that
        each of the endpoints may return, besides those that any call may return; `idempotency` is
        for those that `make` something."""
        self.router = APIRouter(prefix=prefix, tags=[tag], route_class=_checked_first(check))
        self._check = check
        self._security = security
        self._statuses = statuses
        self._idempotency = idempotency

    def _adding(
        self,
        method: str,
        path: str,
        summary: str,
        *statuses: int,
        answers: Mapping[int | str, dict[str, Any]] | None = None,
        described: Mapping[str, Any] | None = None,
        is_direct: bool = False,
        is_streamed: bool = False,
        makes: bool = False,
        finds_made: bool = True,
        **options: Any,
    ) -> Adding:
        """`statuses` are the errors that it may return, besides those of all endpoints; `answers`
        are documented in addition to the errors, `described` in addition to the security
        requirement; `is_direct` makes it a direct route, whose handler takes only the request;
        `is_streamed` makes it one that reads a body of any size as a stream. One that `makes`
        something takes an `Idempotency-Key`, and `finds_made` says whether a repeat finds what an
        interrupted call has made."""
        if makes:
            statuses = (*statuses, 409)
            described = {"parameters": [*self._security["parameters"], PARAMETER]}
        options |= {
            "methods": [method],
            "summary": summary,
            "responses": {**(answers or {}), **errors(*self._statuses, *statuses)},
            "openapi_extra": {**self._security, **(described or {})},
        }
        if is_direct:
            options |= {"route_class_override": DirectRoute, "response_class": Response}
        if is_streamed:
            options["route_class_override"] = _checked_first(self._check, StreamedRoute)
        if makes and self._idempotency:
            once = self._idempotency.of(finds_made=finds_made)
            options["route_class_override"] = _checked_first(self._check, once=once)

        def add(handler: Handler) -> Handler:
            endpoint = checked_first(self._check, handler) if is_direct else handler
            self.router.add_api_route(path, endpoint, **options)
            return handler

        return add

    get: partialmethod[Adding] = partialmethod(_adding, "GET")
    post: partialmethod[Adding] = partialmethod(_adding, "POST")
    make: partialmethod[Adding] = partialmethod(_adding, "POST", makes=True)
    put: partialmethod[Adding] = partialmethod(_adding, "PUT")
    patch: partialmethod[Adding] = partialmethod(_adding, "PATCH")
    delete: partialmethod[Adding] = partialmethod(_adding, "DELETE")


def checked_first(check: Check, endpoint: Endpoint) -> Endpoint:
    """The endpoint, run after the check, as in guarded routes."""

    async def checked(request: Request) -> Response:
        request.state.caller = await check(request)
        return await endpoint(request)

    checked.__name__, checked.__doc__ = endpoint.__name__, endpoint.__doc__
    return checked


async def caller_of(request: Request) -> Any:
    """The result of a guarded route's check; a dependency."""
    return request.state.caller


def joined(*routers: APIRouter) -> APIRouter:
    """One router with the routes of all; an included router would be matched again for each
    request."""
    whole = APIRouter()
    whole.routes.extend(route for router in routers for route in router.routes)
    return whole


class StreamedRoute(OnDemandRoute):
    """Streams its body, with its own limits on the size and on the time between two chunks."""


def _checked_first(
    check: Check, kind: type[OnDemandRoute] = OnDemandRoute, once: Once | None = None
) -> type[OnDemandRoute]:
    class CheckedRoute(kind):  # type: ignore[valid-type, misc]
        def get_route_handler(self) -> Endpoint:
            handler = super().get_route_handler()
            return checked_first(check, handler if once is None else once(handler, self.name))

    return CheckedRoute
