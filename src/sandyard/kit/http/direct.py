"""Direct routes: the busiest calls, served by the outermost middleware."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from sandyard.kit.http.on_demand import OnDemandRoute
from sandyard.kit.http.requests import values_of

Check = Callable[[Request], Awaitable[object]]
Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]


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


def checked_first(check: Check, endpoint: Endpoint) -> Endpoint:
    """The endpoint, run after the check, as in guarded routes."""

    async def checked(request: Request) -> Response:
        request.state.caller = await check(request)
        return await endpoint(request)

    checked.__name__, checked.__doc__ = endpoint.__name__, endpoint.__doc__
    return checked
