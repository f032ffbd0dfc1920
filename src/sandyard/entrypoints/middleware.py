"""What happens around every request: its id, its size limit, its log line and its timing."""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.entrypoints.errors import error_response
from sandyard.kit.errors import BodyBrokenOffError, BodyTooLargeError, SandyardError

logger = logging.getLogger("sandyard.access")

BROKEN_OFF = "BROKEN_OFF"
"""The outcome of a request whose answer did not get to its end."""

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
    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: RequestMetrics,
        in_flight: InFlight,
        make_request_id: Callable[[], str],
        send_request_id: bool,
        max_body_bytes: int,
        body_timeout_sec: float,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._in_flight = in_flight
        self._make_request_id = make_request_id
        self._send_request_id = send_request_id
        self._max_body_bytes = max_body_bytes
        self._body_timeout_sec = body_timeout_sec

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
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self._send_request_id:
                    message["headers"] = [
                        *message["headers"],
                        (b"x-request-id", request_id.encode()),
                    ]
            await send(message)

        try:
            timed = _timed(receive, self._body_timeout_sec)
            body = await _limited(scope, timed, self._max_body_bytes)
            await self._app(scope, body, send_with_id)
        except (BodyTooLargeError, BodyBrokenOffError) as error:
            state["outcome"] = error.code
            await error_response(error, request_id)(scope, receive, send_with_id)
        except ClientDisconnect:
            state["outcome"] = BodyBrokenOffError.code
            if not status:  # it may have closed its own half only, and still listen
                gone = error_response(BodyBrokenOffError(), request_id)
                await gone(scope, receive, send_with_id)
        except Exception:
            logger.exception("unexpected error", extra={"request_id": request_id})
            if status:
                state["outcome"] = BROKEN_OFF
                raise  # the answer has begun; the connection is all that can still be broken off
            state["outcome"] = SandyardError.code
            await error_response(SandyardError(), request_id)(scope, receive, send_with_id)
        finally:
            self._record(scope, state, status, time.perf_counter() - started)

    def _request_id(self, scope: Scope) -> str:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _SANE_REQUEST_ID.match(value):
                return str(value.decode())
        return self._make_request_id()

    def _record(self, scope: Scope, state: Mapping[str, Any], status: int, seconds: float) -> None:
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


def _timed(receive: Receive, seconds: float) -> Receive:
    """`receive`, or BodyBrokenOffError once the body has taken longer than this."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    is_complete = False

    async def timed() -> Message:
        nonlocal is_complete
        if is_complete:  # from here on it only waits for the client to go away
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError as error:
            raise BodyBrokenOffError from error
        is_complete = not message.get("more_body")
        return message

    return timed


async def _limited(scope: Scope, receive: Receive, max_bytes: int) -> Receive:
    """`receive`, or BodyTooLargeError.

    A declared length is judged at once. A body without one is read ahead as far as it may go,
    because a call that needs no body would never look at it.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > max_bytes:
            raise BodyTooLargeError
        if name == b"transfer-encoding":
            return _replay(await _read(receive, max_bytes), receive)
    return receive


async def _read(receive: Receive, max_bytes: int) -> list[Message]:
    messages: list[Message] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        size += len(message.get("body", b""))
        if size > max_bytes:
            raise BodyTooLargeError
        if not message.get("more_body"):
            return messages


def _replay(messages: list[Message], receive: Receive) -> Receive:
    left = iter(messages)

    async def replay() -> Message:
        return next(left, None) or await receive()

    return replay
