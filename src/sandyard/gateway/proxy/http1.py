"""One HTTP/1.1 request to a program on its own connection, with a streamed response."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import h11
from starlette.types import Receive, Send

from sandyard.gateway.errors import ProgramAnswerError, ProgramBrokeOffError, ProgramTimeoutError
from sandyard.gateway.proxy.headers import answer_headers
from sandyard.runtime.sessions.ports import PortConnection

_PIECE_BYTES = 256 * 1024
_HEAD_BYTES = 64 * 1024
"""The limit for a response's head, and for a line between two chunks of its body."""


class ClientGoneError(Exception):
    """The client has left; there is nobody to answer."""


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    method: str
    target: bytes
    headers: Sequence[tuple[bytes, bytes]]


class Exchange:
    """Forwards a request and its response concurrently: a program may respond before it has read
    the whole body. Buffers only one chunk in each direction."""

    def __init__(
        self, connection: PortConnection, receive: Receive, send: Send, *, timeout_sec: float
    ) -> None:
        self._reader = connection.reader
        self._writer = connection.writer
        self._receive = receive
        self._send = send
        self._timeout_sec = timeout_sec
        self._wire = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)

    async def run(self, request: ProgramRequest) -> None:
        """Raises ProgramBrokeOffError, ProgramAnswerError, ProgramTimeoutError, ClientGoneError;
        once the response has started, the caller must close the connection to signal this."""
        head = h11.Request(
            method=request.method, target=request.target, headers=list(request.headers)
        )
        self._writer.write(self._wire.send(head) or b"")
        sending = asyncio.create_task(self._send_body())
        answering = asyncio.create_task(self._pass_answer())
        try:
            await asyncio.wait({sending, answering}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise ClientGoneError
            await answering
        finally:
            sending.cancel()
            answering.cancel()
            await asyncio.gather(sending, answering, return_exceptions=True)
            self._writer.transport.abort()

    async def _send_body(self) -> None:
        """Return when the client disconnects. A program that stopped reading may still respond."""
        takes_more = True
        while (message := await self._receive())["type"] != "http.disconnect":
            if takes_more:
                takes_more = await self._send_piece(message)

    async def _send_piece(self, message: Any) -> bool:
        """Whether the program accepts more; False after the last chunk."""
        try:
            if body := message.get("body"):
                self._write(h11.Data(data=body))
                await self._writer.drain()
            if not message.get("more_body"):
                self._write(h11.EndOfMessage())
                return False
        except (OSError, h11.LocalProtocolError):
            return False
        return True

    def _write(self, event: h11.Data | h11.EndOfMessage) -> None:
        for piece in self._wire.send_with_data_passthrough(event) or ():
            self._writer.write(piece)

    async def _pass_answer(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_sec):
                head = await self._head()
        except TimeoutError as error:
            raise ProgramTimeoutError from error
        headers = answer_headers([(name, value) for name, value in head.headers])
        await self._send(
            {"type": "http.response.start", "status": head.status_code, "headers": headers}
        )
        while isinstance(event := await self._next(), h11.Data):
            body = {"type": "http.response.body", "body": bytes(event.data), "more_body": True}
            await self._send(body)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _head(self) -> h11.Response:
        """The response's head; informational responses are not forwarded."""
        while not isinstance(event := await self._next(), h11.Response):
            if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                raise ProgramAnswerError
        return event

    async def _next(self) -> object:
        """The next event; Data, or a complete end."""
        try:
            while (event := self._wire.next_event()) is h11.NEED_DATA:
                self._wire.receive_data(await self._read())
        except h11.RemoteProtocolError as error:
            if self._reader.at_eof():
                raise ProgramBrokeOffError from error
            raise ProgramAnswerError from error
        if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            raise ProgramBrokeOffError
        return event

    async def _read(self) -> bytes:
        with suppress(OSError):
            return await self._reader.read(_PIECE_BYTES)
        return b""
