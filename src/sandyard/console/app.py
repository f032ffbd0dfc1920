"""The console's application: routes requests to pages and checks access."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.datastructures import QueryParams
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from sandyard.console import assets as assets_module
from sandyard.console.api import Api, ApiError
from sandyard.console.assets import Assets
from sandyard.console.forms import Field, body_of
from sandyard.console.live import Listener, LiveChanges, SharedViews, gathering_sec, is_view
from sandyard.console.operator_logins import OperatorLogins
from sandyard.console.pages import Pages
from sandyard.console.session import Cookies
from sandyard.console.viewer import Viewer, Viewers
from sandyard.kit import errors
from sandyard.kit.http.bodies import OPEN_BYTES, read_form
from sandyard.kit.http.error_statuses import status_of

API = "/console/api"
"""Requests of a page's scripts, which are forwarded to the API."""
LIVE = "/console/live"
LOGIN = "/console/login"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_MOST_FORM_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PartHealth:
    part: str
    engine: str
    trouble: str | None
    """Why it does not work; None if its engine responds and accepts writes."""


@dataclass(frozen=True, slots=True)
class ConsoleRequest:
    """A request to a page, with everything the page needs."""

    http: Request
    viewer: Viewer | None
    console: "Console"

    @property
    def signed_in(self) -> Viewer:
        """The viewer; only open pages have none."""
        if self.viewer is None:
            raise errors.UnauthorizedError
        return self.viewer

    @property
    def api(self) -> Api:
        return self.signed_in.api

    @property
    def anonymous(self) -> Api:
        return self.console.viewers.anonymous(self.http)

    @property
    def query(self) -> QueryParams:
        return self.http.query_params

    @property
    def path_params(self) -> dict[str, Any]:
        return self.http.path_params

    def filters(self, *names: str) -> dict[str, str]:
        """These of the query; empty ones are omitted."""
        values = {name: self.query.get(name, "").strip() for name in names}
        return {name: value for name, value in values.items() if value}

    def wants(self, view: str) -> bool:
        """Whether this view is requested: by its id, or as part of the whole page."""
        target = self.http.headers.get("hx-target")
        return "hx-request" not in self.http.headers or target in (None, view, "main")

    def page(self, template: str, /, **values: Any) -> Response:
        return self.console.pages.page(self.http, template, self.viewer, **values)

    def redirect(self, path: str) -> Response:
        """To another page; htmx loads it as a whole page."""
        url = self.console.pages.url(path)
        if "hx-request" in self.http.headers:
            return Response(headers={"HX-Redirect": url})
        return RedirectResponse(url, 303)

    def end_session(self, path: str) -> Response:
        """To another page, logged out."""
        response = self.redirect(path)
        self.console.cookies.session.clear(response)
        return response

    async def form(self, *names: str) -> dict[str, str]:
        """The fields of the submitted form, or only these; empty ones are omitted."""
        if not hasattr(self.http.state, "form"):  # the body can be read only once
            most_bytes = OPEN_BYTES if self.viewer is None else _MOST_FORM_BYTES
            self.http.state.form = await read_form(self.http, most_bytes=most_bytes)
        sent: dict[str, str] = self.http.state.form
        return {name: sent[name] for name in names if name in sent} if names else sent


Draw = Callable[..., Awaitable[Response]]
"""Of a ConsoleRequest; a page may have arguments for what an action on it has answered."""


@dataclass(frozen=True, slots=True)
class Screen:
    """One page or action of the console."""

    path: str
    draw: Draw
    method: str = "GET"
    is_open: bool = False
    """Accessible without a login."""
    operators_of: str | None = None
    """Accessible to operators of this part only."""
    is_shared: bool = False
    """Its views are the same for all operators."""


operator_screen = partial(Screen, operators_of="broker")
device_screen = partial(Screen, operators_of="telemetry")


def calling(
    call: str,
    then: Draw | str,
    body: Any = None,
    *,
    fields: Mapping[str, Field] | None = None,
    shown: str | None = None,
) -> Draw:
    """An action of a page: one call of the API, such as `DELETE platform/projects/{project_id}`,
    with these fields of the form as its body; then this page, or the one at this path. `shown` is
    the page's argument for what the call answered."""
    method, _, path = call.partition(" ")

    async def act(request: ConsoleRequest) -> Response:
        form = await request.form()
        sent = body if fields is None else body_of(form, fields)
        in_path = {name: form[name] for name in form.keys() - request.path_params.keys()}
        answer = await request.api.call(method, path, body=sent, values=in_path)
        if isinstance(then, str):
            return request.redirect(then.format_map(request.path_params | (answer or {})))
        return await then(request, **({shown: answer} if shown else {}))

    return act


def actions(
    path: str, draws: Mapping[str, Draw], *, operators_of: str | None = None
) -> list[Screen]:
    """One for each action of the page at this path."""
    return [
        Screen(f"{path}/{action}", draw, "POST", operators_of=operators_of)
        for action, draw in draws.items()
    ]


@dataclass(kw_only=True)
class Console:
    """An ASGI application for the requests that `is_for_console` matches."""

    screens: Sequence[Screen]
    pages: Pages
    assets: Assets
    cookies: Cookies
    viewers: Viewers
    operator_logins: OperatorLogins
    live: LiveChanges
    check_health: Callable[[], Awaitable[Sequence[PartHealth]]]

    def __post_init__(self) -> None:
        self._routes = [
            (Route(each.path, _never, methods=[each.method]), each) for each in self.screens
        ]
        self._shared = SharedViews(lambda: gathering_sec(self.live.open_pages))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = HTTPConnection(scope, receive)
        path: str = scope["path"]
        if path.startswith(assets_module.PREFIX + "/"):
            name = path.removeprefix(assets_module.PREFIX).lstrip("/").partition("/")[2]
            await self.assets.response(name)(scope, receive, send)
            return
        if not _may_act(request):
            raise errors.ForbiddenError(
                "This request did not come from a console page. Reload the page."
            )
        viewer = await self._viewer(request)
        if path.startswith(API + "/"):
            if viewer is None:
                raise errors.UnauthorizedError("You are no longer logged in. Log in again.")
            await viewer.api.forward(path.removeprefix(API), receive, send)
            return
        if scope["type"] != "http":
            raise errors.NotFoundError("There is no WebSocket at this path.")
        response = await self._respond(Request(scope, receive, send), viewer)
        await response(scope, receive, send)

    async def _viewer(self, request: HTTPConnection) -> Viewer | None:
        session = self.cookies.session.read(request)
        return None if session is None else await self.viewers.of(request, session)

    async def _respond(self, request: Request, viewer: Viewer | None) -> Response:
        try:
            return await self._drawn(request, viewer, self._screen(request))
        except errors.SandyardError as error:
            return self.pages.error(request, viewer, as_api_error(request, error))
        except ApiError as error:
            return self.pages.error(request, viewer, error)

    async def _drawn(self, request: Request, viewer: Viewer | None, screen: Screen) -> Response:
        if viewer is None and not screen.is_open:
            return self._to_login(request)
        part = screen.operators_of
        if part is not None and not (viewer and viewer.operates(part)):
            raise ApiError(403, _FOR_OPERATORS)
        page = ConsoleRequest(request, viewer, self)
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
            raise errors.MethodNotAllowedError
        raise errors.NotFoundError("There is no such page.")

    def _to_login(self, request: Request) -> Response:
        url = f"{self.pages.url(LOGIN)}?next={quote(self._wanted(request))}"
        if "hx-request" in request.headers:
            return Response(status_code=200, headers={"HX-Redirect": url})
        return RedirectResponse(url, 303)

    def _wanted(self, request: Request) -> str:
        """The page to continue with after the login: the one currently open, if htmx made the
        request."""
        shown = urlsplit(request.headers.get("hx-current-url", str(request.url)))
        path = shown.path.removeprefix(self.pages.url(""))
        return f"{path}?{shown.query}" if shown.query else path

    async def _follow(self, request: ConsoleRequest) -> Response:
        viewer, state = request.signed_in, request.http.scope["state"]

        listener = Listener(
            viewer.account_id,
            viewer.api.operates,
            is_valid=lambda: self._is_still(viewer, request.http),
            is_draining=lambda: state["in_flight"].draining,
        )
        stream = self.live.stream(listener, since_ms=_since_ms(request.http))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _is_still(self, viewer: Viewer, request: Request) -> bool:
        """Whether the session is still valid, with the same rights."""
        try:
            now = await self._viewer(request)
        except ApiError:  # undetermined: do not end the session for an outage
            return True
        return now is not None and now.api.operates == viewer.api.operates


def _may_act(request: HTTPConnection) -> bool:
    """A cookie alone proves nothing: a sandbox's page, which is same-site, sends it too. Requests
    that change something, and WebSockets, must come from our own origin."""
    if request.scope["type"] == "http" and request.scope["method"] in _SAFE:
        return True  # browsers hide responses from other origins; links from them are fine
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc == request.headers.get("host")


def _since_ms(request: Request) -> int:
    """The time up to which the page is current: now, if not given."""
    known = request.headers.get("Last-Event-ID") or request.query_params.get("since", "")
    is_time = known.isascii() and known.isdigit() and len(known) < 16
    return int(known) if is_time else int(time.time() * 1000)


async def _never(_request: Request) -> Response:
    raise errors.NotFoundError  # the route only matches paths


def as_api_error(request: Request, error: errors.SandyardError) -> ApiError:
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
