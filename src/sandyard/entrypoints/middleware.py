"""What happens around every request: its id, its log line and its timing."""

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.entrypoints.answers import BROKEN_OFF
from sandyard.entrypoints.security_headers import with_security_headers
from sandyard.kit.direct import DirectRoutes

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
    """How many requests are being answered; a stopping server waits until there are none."""

    def __init__(self) -> None:
        self.count = 0
        self.draining = False


class RequestMiddleware:
    """Around all others: gives each request its id, runs direct routes, and tells how it went."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        direct: DirectRoutes,
        direct_app: ASGIApp,
        metrics: RequestMetrics,
        in_flight: InFlight,
        make_request_id: Callable[[], str],
        send_request_id: bool,
    ) -> None:
        """`direct_app` is what the requests go to that `direct` takes; all others go to `app`."""
        self._app = app
        self._direct = direct
        self._direct_app = direct_app
        self._metrics = metrics
        self._in_flight = in_flight
        self._make_request_id = make_request_id
        self._send_request_id = send_request_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._in_flight.count += 1
        try:
            await self._answer(scope, receive, send)
        finally:
            self._in_flight.count -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        request_id = self._request_id(scope)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        state["in_flight"] = self._in_flight
        state["status"] = 0

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["status"] = message["status"]
                headers = with_security_headers(message["headers"])
                if self._send_request_id:
                    headers.append((b"x-request-id", request_id.encode()))
                message["headers"] = headers
            await send(message)

        app = self._direct_app if self._direct.takes(scope) else self._app
        try:
            await app(scope, receive, send_with_id)
        finally:
            self._record(scope, state, time.perf_counter() - started)

    def _request_id(self, scope: Scope) -> str:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _SANE_REQUEST_ID.match(value):
                return str(value.decode())
        return self._make_request_id()

    def _record(self, scope: Scope, state: Mapping[str, Any], seconds: float) -> None:
        status = state["status"]
        route = scope.get("route")
        template = getattr(route, "path", "unmatched")
        outcome = state.get("outcome", "ok" if status else BROKEN_OFF)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.observe(method, template, status, seconds)
        if logger.isEnabledFor(logging.INFO):
            logger.info(
                "request",
                extra={
                    "request_id": state["request_id"],
                    "method": scope["method"],
                    "route": template,
                    "status": status,
                    "outcome": outcome,
                    "latency_ms": round(seconds * 1000, 3),
                    **state.get("log", {}),
                },
            )
