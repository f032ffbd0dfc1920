"""The console's application: routes requests to pages and checks access."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from sandyard.console import api_proxy as api_proxy_module
from sandyard.console import assets as assets_module
from sandyard.console import origin
from sandyard.console.api import Api, ApiError
from sandyard.console.api_proxy import ApiProxy
from sandyard.console.assets import Assets
from sandyard.console.health import CheckHealth
from sandyard.console.live import Listener, LiveChanges, gathering_sec
from sandyard.console.operator_logins import OperatorLogins
from sandyard.console.pages import Pages
from sandyard.console.session import Cookies
from sandyard.console.shared_views import SharedViews, is_view
from sandyard.console.viewer import Viewer, Viewers
from sandyard.kit.errors import (
    ForbiddenError,
    MethodNotAllowedError,
    NotFoundError,
    SandyardError,
    UnauthorizedError,
)
from sandyard.kit.http.error_statuses import status_of

LIVE = "/console/live"
LOGIN = "/console/login"


@dataclass(frozen=True, slots=True)
class ConsoleRequest:
    """A request to a page, with everything the page needs."""

    http: Request
    viewer: Viewer | None
    pages: Pages
    viewers: Viewers
    cookies: Cookies
    operator_logins: OperatorLogins
    check_health: CheckHealth

    @property
    def signed_in(self) -> Viewer:
        """The viewer; only open pages have none."""
        if self.viewer is None:
            raise UnauthorizedError
        return self.viewer

    @property
    def api(self) -> Api:
        return self.signed_in.api

    @property
    def query(self) -> QueryParams:
        return self.http.query_params

    @property
    def path_params(self) -> dict[str, Any]:
        return self.http.path_params

    def wants(self, view: str) -> bool:
        """Whether this view is requested: by its id, or as part of the whole page."""
        target = self.http.headers.get("hx-target")
        return "hx-request" not in self.http.headers or target in (None, view, "main")

    def page(self, template: str, **values: object) -> Response:
        return self.pages.page(self.http, template, self.viewer, **values)

    def redirect(self, path: str) -> Response:
        """To another page; htmx loads it as a whole page."""
        url = self.pages.url(path)
        if "hx-request" in self.http.headers:
            return Response(headers={"HX-Redirect": url})
        return RedirectResponse(url, 303)

    def end_session(self, path: str) -> Response:
        """To another page, logged out."""
        response = self.redirect(path)
        self.cookies.session.clear(response)
        return response

    async def form(self) -> dict[str, str]:
        """The fields of the submitted form; empty ones are omitted."""
        return dict(parse_qsl((await self.http.body()).decode("utf-8", "replace")))


Draw = Callable[[ConsoleRequest], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Screen:
    """One page or action of the console."""

    path: str
    draw: Draw
    methods: Sequence[str] = ("GET",)
    is_open: bool = False
    """Accessible without a login."""
    for_operators: bool = False
    is_shared: bool = False
    """Its views are the same for all operators."""


def operator_screen(path: str, draw: Draw, *methods: str) -> Screen:
    return Screen(path, draw, methods=methods or ("GET",), for_operators=True)


class Console:
    """An ASGI application for the requests that `is_for_console` matches."""

    def __init__(
        self,
        screens: Sequence[Screen],
        *,
        pages: Pages,
        assets: Assets,
        cookies: Cookies,
        viewers: Viewers,
        operator_logins: OperatorLogins,
        api_proxy: ApiProxy,
        live: LiveChanges,
        check_health: CheckHealth,
    ) -> None:
        self._routes = [
            (Route(each.path, _never, methods=list(each.methods)), each) for each in screens
        ]
        self._pages = pages
        self._assets = assets
        self._cookies = cookies
        self._viewers = viewers
        self._operator_logins = operator_logins
        self._api_proxy = api_proxy
        self._live = live
        self._shared = SharedViews(lambda: gathering_sec(live.open_pages))
        self._check_health = check_health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = HTTPConnection(scope, receive)
        path: str = scope["path"]
        if path.startswith(assets_module.PREFIX + "/"):
            name = path.removeprefix(assets_module.PREFIX).lstrip("/").partition("/")[2]
            await self._assets.response(name)(scope, receive, send)
            return
        if not origin.may_act(request):
            raise ForbiddenError("This request did not come from a console page. Reload the page.")
        viewer = await self._viewer(request)
        if path.startswith(api_proxy_module.PREFIX + "/"):
            if viewer is None:
                raise UnauthorizedError("You are no longer logged in. Log in again.")
            await self._api_proxy(viewer, request, receive, send)
            return
        if scope["type"] != "http":
            raise NotFoundError("There is no WebSocket at this path.")
        response = await self._respond(Request(scope, receive, send), viewer)
        await response(scope, receive, send)

    async def _viewer(self, request: HTTPConnection) -> Viewer | None:
        session = self._cookies.session.read(request)
        return None if session is None else await self._viewers.of(request, session)

    async def _respond(self, request: Request, viewer: Viewer | None) -> Response:
        try:
            return await self._drawn(request, viewer, self._screen(request))
        except SandyardError as error:
            return self._pages.error(request, viewer, as_api_error(request, error))
        except ApiError as error:
            return self._pages.error(request, viewer, error)

    async def _drawn(self, request: Request, viewer: Viewer | None, screen: Screen) -> Response:
        if viewer is None and not screen.is_open:
            return self._to_login(request)
        if screen.for_operators and not (viewer and viewer.is_operator):
            raise ApiError(403, _FOR_OPERATORS)
        page = ConsoleRequest(
            request,
            viewer,
            self._pages,
            self._viewers,
            self._cookies,
            self._operator_logins,
            self._check_health,
        )
        if screen.is_shared and is_view(request):
            return await self._shared.drawn(request, lambda: screen.draw(page))
        return await screen.draw(page)

    def _screen(self, request: Request) -> Screen:
        if request.url.path == LIVE:
            return Screen(LIVE, self._follow)
        other_method = False
        for route, screen in self._routes:
            match, found = route.matches(request.scope)
            if match is Match.FULL:
                request.scope.update(found)
                return screen
            other_method |= match is Match.PARTIAL
        if other_method:
            raise MethodNotAllowedError
        raise NotFoundError("There is no such page.")

    def _to_login(self, request: Request) -> Response:
        url = f"{self._pages.url(LOGIN)}?next={quote(self._wanted(request))}"
        if "hx-request" in request.headers:
            return Response(status_code=200, headers={"HX-Redirect": url})
        return RedirectResponse(url, 303)

    def _wanted(self, request: Request) -> str:
        """The page to continue with after the login: the one currently open, if htmx made the
        request."""
        shown = urlsplit(request.headers.get("hx-current-url", str(request.url)))
        path = shown.path.removeprefix(self._pages.url(""))
        return f"{path}?{shown.query}" if shown.query else path

    async def _follow(self, request: ConsoleRequest) -> Response:
        viewer, state = request.signed_in, request.http.scope["state"]

        listener = Listener(
            viewer.account_id,
            viewer.is_operator,
            is_valid=lambda: self._is_still(viewer, request.http),
            is_draining=lambda: state["in_flight"].draining,
        )
        stream = self._live.stream(listener, since_ms=_since_ms(request.http))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _is_still(self, viewer: Viewer, request: Request) -> bool:
        """Whether the session is still valid, with the same rights."""
        try:
            now = await self._viewer(request)
        except ApiError:  # undetermined: do not end the session for an outage
            return True
        return now is not None and now.is_operator == viewer.is_operator


def _since_ms(request: Request) -> int:
    """The time up to which the page is current: now, if not given."""
    known = request.headers.get("Last-Event-ID") or request.query_params.get("since", "")
    is_time = known.isascii() and known.isdigit() and len(known) < 16
    return int(known) if is_time else int(time.time() * 1000)


async def _never(_request: Request) -> Response:
    raise NotFoundError  # the route only matches paths


def as_api_error(request: Request, error: SandyardError) -> ApiError:
    """One of our own errors, in the API's form."""
    body: dict[str, object] = {"code": error.code, "message": error.message}
    body["request_id"] = request.scope["state"]["request_id"]
    if error.retry_after is not None:
        body["retry_after"] = error.retry_after
    return ApiError(status_of(error), body)


_FOR_OPERATORS = {
    "code": "OPERATORS_ONLY",
    "message": "This page is for operators. Log in with an admin account or an operator token.",
}
