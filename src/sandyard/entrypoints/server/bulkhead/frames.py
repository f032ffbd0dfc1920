"""ASGI scopes and messages as frames, in both directions of a connection between two processes.

A frame is a head in JSON, and content that is passed on as it is. A response is split, so that a
frame is small; only a message of a WebSocket is sent whole.
"""

import asyncio
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from starlette.types import Message

from sandyard.kit.sizes import MESSAGE_BYTES

_LENGTHS = struct.Struct("!II")
_PIECE_BYTES = 128 * 1024
_HELD_BYTES = 256 * 1024
"""When so much waits to be read or sent, the other side has to wait."""
_MOST_BYTES = MESSAGE_BYTES + 1024 * 1024
_CONTENTS = ("body", "bytes", "text")
_SENT_AS_TEXT = ("raw_path", "query_string")
_PAIRS = ("client", "server")


class Connection(asyncio.Protocol):
    """The frames of one request. What is received is decoded when it is read."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._received = bytearray()
        self._is_paused = False
        self._is_closed = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=_HELD_BYTES)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._has_frame():
            return
        self._readable.set()
        if len(self._received) > _HELD_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _has_frame(self) -> bool:
        """Whether the next frame was received whole, or is malformed."""
        if len(self._received) < _LENGTHS.size:
            return False
        size: int = _LENGTHS.size + sum(_LENGTHS.unpack_from(self._received))
        return len(self._received) >= size or size > _MOST_BYTES

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, _error: Exception | None) -> None:
        self._is_closed = True
        self._readable.set()
        self._writable.set()

    async def read(self) -> Message | None:
        """The next message; None if the other side has closed the connection, or sent what is not a
        frame."""
        while not self._has_frame():
            if self._is_closed:
                return None
            self._readable.clear()
            await self._readable.wait()
        try:
            message = self._decode_first()
        except ValueError:
            self._received.clear()
            self.abort()
            return None
        is_needed = len(self._received) <= _HELD_BYTES or not self._has_frame()
        if self._is_paused and is_needed and not self._is_closed:
            self._is_paused = False
            self._transport.resume_reading()
        return message

    def _decode_first(self) -> Message:
        """Raises ValueError."""
        head, content = _LENGTHS.unpack_from(self._received)
        begin, end = _LENGTHS.size + head, _LENGTHS.size + head + content
        if end > _MOST_BYTES:
            raise ValueError("the frame is too large")
        with memoryview(self._received) as view:
            message = _decoded(bytes(view[_LENGTHS.size : begin]), bytes(view[begin:end]))
        del self._received[:end]
        return message

    async def send(self, message: Mapping[str, Any]) -> None:
        """Returns when the other side can take more; without an effect once it has closed the
        connection."""
        for piece in _pieces(message):
            if self._is_closed:
                await asyncio.sleep(0)  # a sender that does not look for the end stops nobody
                return
            self._transport.writelines(_encoded(piece))
            if not self._writable.is_set():
                await self._writable.wait()

    def abort(self) -> None:
        self._transport.abort()


def _pieces(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    body = message.get("body")
    if body is None or len(body) <= _PIECE_BYTES:
        yield message
        return
    view = memoryview(body)
    for begin in range(0, len(view), _PIECE_BYTES):
        end = begin + _PIECE_BYTES
        more = end < len(view) or message.get("more_body", False)
        yield {**message, "body": view[begin:end], "more_body": more}


def _encoded(message: Mapping[str, Any]) -> list[Any]:
    head = {**message}
    content: Any = b""
    for name in _CONTENTS:
        value = head.pop(name, None)
        if value is not None:
            head["content"] = name
            content = value.encode() if isinstance(value, str) else value
    if "headers" in head:
        headers = head["headers"]
        head["headers"] = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in headers]
    for name in _SENT_AS_TEXT:
        if name in head:
            head[name] = head[name].decode("latin-1")
    encoded = orjson.dumps(head)
    return [_LENGTHS.pack(len(encoded), len(content)) + encoded, content]


def _decoded(head: bytes, content: bytes) -> Message:
    message: Message = orjson.loads(head)
    if "headers" in message:
        headers = message["headers"]
        message["headers"] = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers]
    for name in _SENT_AS_TEXT:
        if name in message:
            message[name] = message[name].encode("latin-1")
    for name in _PAIRS:
        if message.get(name) is not None:
            message[name] = tuple(message[name])
    name = message.pop("content", None)
    if name is not None:
        message[name] = content.decode() if name == "text" else content
    return message
