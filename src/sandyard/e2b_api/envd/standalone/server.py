"""A small HTTP server for one ASGI application: HTTP/1.1 by h11, over asyncio's streams."""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_to_bytes

import h11
from starlette.types import ASGIApp, Message, Scope

_READ_BYTES = 1 << 16

Tunnel = Callable[[h11.Request], Awaitable[tuple[StreamReader, StreamWriter] | int]]
"""Where a CONNECT leads, or the status that refuses it."""


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    tunnel: Tunnel | None = None,
) -> asyncio.Server:
    """Port 0 is any free one."""

    async def connected(reader: StreamReader, writer: StreamWriter) -> None:
        connection = _Connection(app, reader, writer, tunnel)
        try:
            with suppress(ConnectionError, h11.ProtocolError):
                while await connection.serve_next():
                    pass
        finally:
            writer.close()

    return await asyncio.start_server(connected, host, port, ssl=tls)


class _Connection:
    def __init__(
        self, app: ASGIApp, reader: StreamReader, writer: StreamWriter, tunnel: Tunnel | None
    ) -> None:
        self._app = app
        self._tunnel = tunnel
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)

    async def serve_next(self) -> bool:
        """Whether another request may follow."""
        request = await self._next_event()
        if not isinstance(request, h11.Request):
            return False
        if request.method == b"CONNECT" and self._tunnel is not None:
            await self._join(await self._tunnel(request))
            return False
        await self._app(_scope(request), self._receive, self._send)
        while self._http.their_state is h11.SEND_BODY:
            await self._next_event()
        if set(self._http.states.values()) != {h11.DONE}:
            return False
        self._http.start_next_cycle()
        return True

    async def _join(self, far: tuple[StreamReader, StreamWriter] | int) -> None:
        """Pass bytes on in both directions until both have ended."""
        if isinstance(far, int):
            headers = [("content-length", "0"), ("connection", "close")]
            await self._write(h11.Response(status_code=far, headers=headers))
            return
        await self._write(h11.Response(status_code=200, headers=[]))
        far[1].write(self._http.trailing_data[0])
        try:
            await asyncio.gather(_relay(self._reader, far[1]), _relay(far[0], self._writer))
        finally:
            far[1].close()

    async def _next_event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._reader.read(_READ_BYTES))
        return event

    async def _receive(self) -> Message:
        if self._http.their_state is not h11.SEND_BODY:
            while data := await self._reader.read(_READ_BYTES):
                self._http.receive_data(data)  # the next request
            return {"type": "http.disconnect"}
        event = await self._next_event()
        if isinstance(event, h11.ConnectionClosed):
            return {"type": "http.disconnect"}
        is_data = isinstance(event, h11.Data)
        body = bytes(event.data) if is_data else b""
        return {"type": "http.request", "body": body, "more_body": is_data}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message["headers"])
            await self._write(h11.Response(status_code=message["status"], headers=headers))
            return
        if body := message.get("body", b""):
            await self._write(h11.Data(data=body))
        if not message.get("more_body", False):
            await self._write(h11.EndOfMessage())

    async def _write(self, event: Any) -> None:
        self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()


async def _relay(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:  # TLS has no half-closed connections
        writer.close()


def _scope(request: h11.Request) -> Scope:
    target, _, query = request.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": request.http_version.decode(),
        "method": request.method.decode(),
        "scheme": "http",
        "path": unquote_to_bytes(target).decode(errors="replace"),
        "raw_path": target,
        "query_string": query,
        "root_path": "",
        "headers": list(request.headers),
        "state": {},
    }
