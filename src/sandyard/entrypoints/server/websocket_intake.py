"""Tracks unfinished messages of WebSocket clients, and the bytes that they hold in memory.

The HTTP server buffers a message of up to 64 MB, and delivers nothing of it before it is complete.
What it holds is what it received from the kernel on a connection, less what it delivered as
messages.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import Message, Receive, Scope, Send

from sandyard.entrypoints.server.connections import Connection, Peer
from sandyard.kit.sizes import MESSAGE_BYTES

TOGETHER_BYTES = 16 * MESSAGE_BYTES
_MESSAGE_TOO_BIG = 1009
_HEADERS_BYTES = 64
"""The most that a message's frame and the TLS record around it add."""
_SLACK_BYTES = 1024 * 1024
"""For pings, and headers of many frames."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Messages delivered so far."""

    messages: int = 0
    size_bytes: int = 0


class ClientSocket:
    """A client's WebSocket. A message that is too large closes it."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._is_closed = False
        self.taken = Taken()

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "websocket.receive":
            return message
        size = _size_of(message)
        self.taken = Taken(self.taken.messages + 1, self.taken.size_bytes + size)
        if size <= MESSAGE_BYTES:
            return message
        self._is_closed = True
        await self._send({"type": "websocket.close", "code": _MESSAGE_TOO_BIG})
        return {"type": "websocket.disconnect", "code": _MESSAGE_TOO_BIG}

    async def send(self, message: Message) -> None:
        if not self._is_closed:
            await self._send(message)


class WebSocketIntake:
    """The currently open WebSockets."""

    def __init__(self) -> None:
        self._sockets: dict[Peer, ClientSocket] = {}

    @contextmanager
    def opened(self, scope: Scope, receive: Receive, send: Send) -> Iterator[ClientSocket]:
        host, port = scope["client"]
        peer, socket = (host, int(port)), ClientSocket(receive, send)
        self._sockets[peer] = socket
        try:
            yield socket
        finally:
            del self._sockets[peer]

    def taken(self) -> dict[Peer, Taken]:
        return {peer: socket.taken for peer, socket in self._sockets.copy().items()}


@dataclass(frozen=True, slots=True)
class _Look:
    received_bytes: int
    taken: Taken
    held_bytes: int


class UnfinishedMessages:
    """Finds the connections whose unfinished messages are too large, alone or together."""

    def __init__(self, intake: WebSocketIntake) -> None:
        self._intake = intake
        self._looks: dict[int, _Look] = {}

    def find(self, connections: Sequence[Connection]) -> dict[Connection, str]:
        taken = self._intake.taken()
        before, self._looks = self._looks, {}
        for each in connections:
            look = _look(each, taken.get(each.peer), before.get(each.inode))
            self._looks[each.inode] = look
        return choose_largest({each: self._looks[each.inode].held_bytes for each in connections})


def choose_largest(held: dict[Connection, int]) -> dict[Connection, str]:
    """Those that hold too much; if the total is too large, the largest first."""
    chosen: dict[Connection, str] = {}
    together = sum(held.values())
    for each in sorted(held, key=lambda each: held[each], reverse=True):
        if held[each] <= MESSAGE_BYTES + _SLACK_BYTES and together <= TOGETHER_BYTES:
            break
        chosen[each] = "its unfinished WebSocket message is too large"
        together -= held[each]
    return chosen


def _look(connection: Connection, taken: Taken | None, before: _Look | None) -> _Look:
    """While a message is unfinished no other is delivered, so everything received belongs to it.
    After a delivery, the bytes received since the last check and not delivered do."""
    received = connection.received_bytes
    if taken is None:  # not a WebSocket, or not yet
        return _Look(received, Taken(), 0)
    before = before or _Look(0, Taken(), 0)
    new = received - before.received_bytes
    messages = taken.messages - before.taken.messages
    if not messages:
        return _Look(received, taken, before.held_bytes + new)
    out = taken.size_bytes - before.taken.size_bytes
    out += out // 64 + messages * _HEADERS_BYTES
    return _Look(received, taken, max(0, new - out))


def _size_of(message: Message) -> int:
    if (data := message.get("bytes")) is not None:
        return len(data)
    text: str = message.get("text") or ""
    return len(text) if text.isascii() else len(text.encode())
