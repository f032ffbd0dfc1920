"""Handles every request and WebSocket: its id, headers, log line and timing."""

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.entrypoints.http.answers import BROKEN_OFF
from sandyard.entrypoints.server.websocket_intake import WebSocketIntake
from sandyard.kit.http.routes import DirectRoutes
from sandyard.kit.http.security import RawHeaders
from sandyard.kit.observability.log import log_info
from sandyard.kit.wired import wired

logger = logging.getLogger("sandyard.access")

_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_SANE_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}\Z")
_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 1, 2.5, 5, 15)


class RequestMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.latency = Histogram(
            "request_latency_seconds",
            "Time to answer a request",
            ("method", "route", "status"),
            buckets=_LATENCIES,
            registry=registry,
        )
        self._children: dict[tuple[str, str, int], Histogram] = {}

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        labels = (method, route, status)
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self.latency.labels(method, route, str(status))
        child.observe(seconds)


class InFlight:
    """The number of requests in progress, which a stopping server waits for; and the open
    WebSockets, which it does not wait for."""

    def __init__(self) -> None:
        self.count = 0
        self.draining = False
        self.websockets = WebSocketIntake()


@dataclass(frozen=True, slots=True)
class HostedApp:
    """An application for the requests that `matches` selects."""

    matches: Callable[[Scope], bool]
    app: ASGIApp
    route: "_Template"
    """The route for metrics and logs; the paths are the application's own."""
    has_own_headers: bool = True
    """Its responses are passed on without security headers of ours."""


@dataclass(frozen=True, slots=True)
class Applications:
    """The applications that a request may be for."""

    root: Any
    """The value of `request.app`."""
    api: ASGIApp
    direct: DirectRoutes
    direct_api: ASGIApp
    """For the requests that `direct` accepts."""
    websockets: ASGIApp
    hosted: Sequence[HostedApp] = ()
    """The first that accepts a request gets it; other requests go to the API."""

    def app_for(self, scope: Scope) -> ASGIApp:
        if scope["type"] == "websocket":
            return self.websockets
        return self.direct_api if self.direct.matches(scope) else self.api

    async def call_api(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app_for(scope)(scope, receive, send)

    def find_hosted(self, scope: Scope) -> HostedApp | None:
        for each in self.hosted:
            if each.matches(scope):
                return each
        return None


@wired
class RequestMiddleware:
    """The outermost middleware: assigns each request its id, runs direct routes, and records the
    outcome."""

    apps: Applications
    metrics: RequestMetrics
    in_flight: InFlight
    make_request_id: Callable[[], str]
    send_request_id: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            with self.in_flight.websockets.opened(scope, receive, send) as socket:
                await self._answer(scope, socket.receive, socket.send)
            return
        if scope["type"] != "http":
            await self.apps.api(scope, receive, send)
            return
        self.in_flight.count += 1
        try:
            await self._answer(scope, receive, send)
        finally:
            self.in_flight.count -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        state = self._begin(scope)
        hosted = self.apps.find_hosted(scope)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["status"] = message["status"]
                headers = message["headers"]
                is_passed_on = hosted is not None and hosted.has_own_headers
                headers = [*headers] if is_passed_on else with_security_headers(headers)
                if self.send_request_id:
                    headers.append((b"x-request-id", state["request_id"].encode()))
                message["headers"] = headers
            elif message["type"] == "websocket.accept":
                state["status"] = 101
            elif message["type"] == "websocket.http.response.start":
                state["status"] = message["status"]
                identified = (b"x-request-id", state["request_id"].encode())
                message["headers"] = [*message["headers"], identified]
            await send(message)

        try:
            await self._app_of(scope, hosted)(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - started
            if scope["type"] == "http":
                self._measure(scope, state["status"], seconds)
            self._log(scope, state, seconds)

    async def call_inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A call of the API that another process makes for a request of its own, which has the log
        line and the timing."""
        state = self._begin(scope)

        async def send_noting_status(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["status"] = message["status"]
            await send(message)

        await self.apps.call_api(scope, receive, send_noting_status)

    def _begin(self, scope: Scope) -> dict[str, Any]:
        scope["app"] = self.apps.root
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = self._request_id(scope)
        state["in_flight"] = self.in_flight
        state["status"] = 0
        return state

    def _app_of(self, scope: Scope, hosted: HostedApp | None) -> ASGIApp:
        if hosted is None:
            return self.apps.app_for(scope)
        scope["route"] = hosted.route
        return hosted.app

    def _request_id(self, scope: Scope) -> str:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _SANE_REQUEST_ID.match(value):
                return str(value.decode())
        return self.make_request_id()

    def _measure(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self.metrics.observe(method, _template(scope), status, seconds)

    def _log(self, scope: Scope, state: Mapping[str, Any], seconds: float) -> None:
        status = state["status"]
        fields = {
            "request_id": state["request_id"],
            "method": scope.get("method", "WEBSOCKET"),
            "route": _template(scope),
            "status": status,
            "outcome": state.get("outcome", "ok" if status else BROKEN_OFF),
            "latency_ms": round(seconds * 1000, 3),
            **state.get("log", {}),
        }
        log_info(logger, "request", fields)


@dataclass(frozen=True, slots=True)
class _Template:
    path: str


GATEWAY = _Template("gateway")
"""The route of all requests to sandboxes, whose paths are their own."""
E2B = _Template("e2b")
MCP = _Template("mcp")
TENANTS = _Template("tenants")
"""The route of requests for the tenants' process while it does not run."""
CONSOLE = _Template("console")
"""The route of all pages of the console."""


def _template(scope: Scope) -> str:
    return getattr(scope.get("route"), "path", "unmatched")


_UNLESS_SET = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
}
"""Defaults; pages and public files set their own values."""


def with_security_headers(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    return [*headers, *_missing(tuple([name for name, _ in headers]))]


@lru_cache
def _missing(own: tuple[bytes, ...]) -> list[tuple[bytes, bytes]]:
    return [each for each in _UNLESS_SET.items() if each[0] not in own]
