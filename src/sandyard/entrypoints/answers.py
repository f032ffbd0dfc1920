"""Limits on what a request sends, and an answer to whatever goes wrong."""

import asyncio
import logging

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.entrypoints.errors import respond
from sandyard.kit.errors import BodyBrokenOffError, BodyTooLargeError, SandyardError

logger = logging.getLogger("sandyard.access")

BROKEN_OFF = "BROKEN_OFF"
"""The outcome of a request whose answer did not get to its end."""


class AnswerErrors:
    """Holds bodies to their size and time, and answers every error in the one shape."""

    def __init__(self, app: ASGIApp, *, max_body_bytes: int, body_timeout_sec: float) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._body_timeout_sec = body_timeout_sec

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            timed = _timed(receive, self._body_timeout_sec)
            body = await _limited(scope, timed, self._max_body_bytes)
            await self._app(scope, body, send)
        except SandyardError as error:
            await _answer(error, scope, receive, send)
        except ClientDisconnect:
            await _answer(BodyBrokenOffError(), scope, receive, send)
        except Exception:
            state = scope["state"]
            logger.exception("unexpected error", extra={"request_id": state["request_id"]})
            if state["status"]:
                state["outcome"] = BROKEN_OFF
                raise  # the answer has begun; the connection is all that can still be broken off
            await _answer(SandyardError(), scope, receive, send)


async def _answer(error: SandyardError, scope: Scope, receive: Receive, send: Send) -> None:
    """Also to a client that is gone: it may have closed its own half only, and still listen."""
    response = await respond(Request(scope), error)
    if not scope["state"]["status"]:
        await response(scope, receive, send)


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

    A declared length is checked at once. A body without one is read ahead as far as it may go,
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
