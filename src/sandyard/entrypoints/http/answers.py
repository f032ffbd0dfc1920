"""Enforces limits on request bodies, and turns errors into responses."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.entrypoints.http.errors import respond
from sandyard.kit.errors import BodyBrokenOffError, BodyTooLargeError, SandyardError
from sandyard.kit.http.routes import StreamedRoute

logger = logging.getLogger("sandyard.access")

BROKEN_OFF = "BROKEN_OFF"
"""The outcome of a request whose response was not completed."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of a body: bytes, and seconds for all of it. For a streamed body the seconds are for
    each chunk."""

    max_bytes: int
    timeout_sec: float
    max_streamed_bytes: int
    streamed_timeout_sec: float


class ErrorResponses:
    """Enforces the limits on bodies, and returns every error in the same format."""

    def __init__(
        self, app: ASGIApp, *, limits: BodyLimits, streamed: Sequence[StreamedRoute] = ()
    ) -> None:
        """`streamed` are the routes that stream their bodies."""
        self._app = app
        self._limits = limits
        self._streamed = streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            receive = self._limited(scope, receive)
            if _is_undeclared(scope) and not self._is_streamed(scope):
                receive = _replay(await _read(receive, self._limits.max_bytes), receive)
            await self._app(scope, receive, send)
        except SandyardError as error:
            await _answer(error, scope, receive, send)
        except ClientDisconnect:
            await _answer(BodyBrokenOffError(), scope, receive, send)
        except Exception as error:
            state = scope["state"]
            cause = error.__cause__  # Starlette's error, if ours came after the start
            if state["status"] and isinstance(cause, SandyardError):
                _log_aborted(cause, state["request_id"])
            else:
                logger.exception("unexpected error", extra={"request_id": state["request_id"]})
            if state["status"]:
                state["outcome"] = BROKEN_OFF
                raise  # the response has started; all we can do is close the connection
            await _answer(SandyardError(), scope, receive, send)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """A declared length is checked at once."""
        limits = self._limits
        if self._is_streamed(scope):
            _require_length(scope, limits.max_streamed_bytes)
            return _streamed(receive, limits.max_streamed_bytes, limits.streamed_timeout_sec)
        _require_length(scope, limits.max_bytes)
        return _timed(receive, limits.timeout_sec)

    def _is_streamed(self, scope: Scope) -> bool:
        streamed = self._streamed
        return bool(streamed) and any(route.matches(scope)[0] is Match.FULL for route in streamed)


def _is_undeclared(scope: Scope) -> bool:
    """Whether a body of undeclared length follows. It is read ahead up to its limit, because a call
    that needs no body would never read it."""
    for name, _ in scope["headers"]:  # noqa: SIM110 - a generator costs more than the search
        if name == b"transfer-encoding":
            return True
    return False


def _log_aborted(error: SandyardError, request_id: str) -> None:
    fields = {"outcome": error.code, "reason": error.message, "request_id": request_id}
    logger.info("response aborted", extra=fields)


async def _answer(error: SandyardError, scope: Scope, receive: Receive, send: Send) -> None:
    """Also to a client that disconnected: it may have closed only its own half, and still read."""
    response = await respond(Request(scope), error)
    if not scope["state"]["status"]:
        await response(scope, receive, send)


def _timed(receive: Receive, seconds: float) -> Receive:
    """`receive`, which raises BodyBrokenOffError once the body has taken longer than this."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    is_complete = False

    async def timed() -> Message:
        nonlocal is_complete
        if is_complete:  # from here on it only waits for the disconnect
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError as error:
            raise BodyBrokenOffError from error
        is_complete = not message.get("more_body")
        return message

    return timed


def _streamed(receive: Receive, max_bytes: int, timeout_sec: float) -> Receive:
    """`receive`, which raises BodyTooLargeError once there are more bytes, BodyBrokenOffError once
    a chunk has taken longer than this."""
    size = 0
    is_complete = False

    async def streamed() -> Message:
        nonlocal size, is_complete
        if is_complete:
            return await receive()
        message = await _timed(receive, timeout_sec)()
        size += len(message.get("body", b""))
        if size > max_bytes:
            raise BodyTooLargeError
        is_complete = not message.get("more_body")
        return message

    return streamed


def _require_length(scope: Scope, max_bytes: int) -> None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > max_bytes:
            raise BodyTooLargeError


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
