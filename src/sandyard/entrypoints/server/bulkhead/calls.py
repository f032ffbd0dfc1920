"""Requests from one process to the other: the caller's side and the side that answers."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.entrypoints.server.bulkhead.channel import opened
from sandyard.entrypoints.server.bulkhead.frames import Connection
from sandyard.entrypoints.server.bulkhead.turns import Turns
from sandyard.kit.errors import UnavailableError
from sandyard.kit.http.inner_calls import INNER

logger = logging.getLogger(__name__)

_SCOPE = (
    *("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string"),
    *("root_path", "headers", "client", "server", "subprotocols", "extensions", INNER),
)
_ENDS_OF_WEBSOCKETS = ("websocket.close", "websocket.http.response.start")
_ABNORMAL, _RESTARTS = 1006, 1012
_END = "end"
"""Follows the last message of a response, also of one that breaks off."""

Connect = Callable[[], Awaitable[Connection]]


class ProcessAwayError(UnavailableError):
    """The process for this request is not running. Try again shortly."""

    code = UnavailableError.code


class BrokenOffError(Exception):
    """The other process died in the middle of its response."""


class Caller:
    """An ASGI application that passes each request on to the other process."""

    def __init__(self, connect: Connect) -> None:
        """`connect` raises ProcessAwayError if that process does not run."""
        self._connect = connect
        self._turns = Turns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ProcessAwayError if no response has started, BrokenOffError if one has."""
        await self._turns.step()
        connection = await self._connect()
        await connection.send({name: scope[name] for name in _SCOPE if name in scope})
        passing = asyncio.create_task(self._pass_on(receive, connection))
        try:
            await self._pass_back(scope, connection, send, passing)
        finally:
            await _stop(passing)
            connection.abort()

    async def _pass_on(self, receive: Receive, connection: Connection) -> bool:
        """All that the client sends; returns whether it has disconnected. Callers inside the server
        never disconnect, and repeat the end of their body."""
        is_complete = False
        while True:
            message = await receive()
            is_disconnect = message["type"].endswith(".disconnect")
            if is_complete and not is_disconnect:
                return False
            await self._turns.step()
            await connection.send(message)
            if is_disconnect:
                return True
            is_complete = message["type"] == "http.request" and not message.get("more_body")

    async def _pass_back(
        self, scope: Scope, connection: Connection, send: Send, passing: asyncio.Task[bool]
    ) -> None:
        has_started = False
        while (message := await connection.read()) is not None and message["type"] != _END:
            await self._turns.step()
            if message["type"] in _ENDS_OF_WEBSOCKETS:
                await _stop(passing)  # the server ends no WebSocket while something is received
            await send(message)
            if _is_last(message):
                return
            has_started = True
        if _has_left(passing):
            return  # nobody waits for a response
        if not has_started:
            raise ProcessAwayError(retry_after=1)
        if scope["type"] != "websocket":
            raise BrokenOffError
        await _stop(passing)
        await send({"type": "websocket.close", "code": _RESTARTS})


def _has_left(passing: asyncio.Task[bool]) -> bool:
    """Whether the client has disconnected."""
    is_over = passing.done() and not passing.cancelled() and passing.exception() is None
    return is_over and passing.result()


def _is_last(message: Message) -> bool:
    if message["type"] in ("websocket.close", "http.response.pathsend"):
        return True
    return message["type"].endswith(".response.body") and not message.get("more_body")


async def _stop(task: asyncio.Task[bool]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task


class Answerer:
    """Runs an ASGI application for the requests that the other process passes on, and another one
    for those that it makes itself."""

    def __init__(self, app: ASGIApp, inner: ASGIApp) -> None:
        self._app = app
        self._inner = inner
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, end: socket.socket) -> None:
        task = asyncio.create_task(self._answer(end))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, end: socket.socket) -> None:
        connection = await opened(end)
        scope = await connection.read()
        if scope is None:  # its caller has already left
            return
        scope["state"] = {}
        app = self._inner if scope.get(INNER) else self._app
        with suppress(Exception):  # logged by the application: here it only breaks the response off
            await app(scope, _receiving(connection, scope), connection.send)
        await connection.send({"type": _END})
        # To close first, while the other side still sends, would discard what it has not read.
        while await connection.read() is not None:
            pass


def _receiving(connection: Connection, scope: Scope) -> Receive:
    async def receive() -> Message:
        message = await connection.read()
        if message is not None:
            return message
        if scope["type"] == "websocket":
            return {"type": "websocket.disconnect", "code": _ABNORMAL}
        return {"type": "http.disconnect"}

    return receive
