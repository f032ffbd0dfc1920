"""A WebSocket to a program; forwards messages both ways."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from starlette.types import Receive, Send
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from sandyard.gateway.errors import ProgramAnswerError, ProgramBrokeOffError, ProgramTimeoutError
from sandyard.kit.sizes import MESSAGE_BYTES
from sandyard.runtime.sessions.ports import PortConnection

_PIECE_BYTES = 256 * 1024
_UNSENDABLE = frozenset({CloseCode.NO_STATUS_RCVD, CloseCode.ABNORMAL_CLOSURE})


class HandshakeRefusedError(Exception):
    """The program answered something else than 101."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"the program answered {status}")


class HeldTooMuchError(Exception):
    """The clients of this sandbox have sent more than its program takes."""


class HeldBytes:
    """The bytes that the gateway buffers of one sandbox's messages: incomplete ones, and those not
    yet delivered."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    def add(self, count: int) -> bool:
        """Whether there is room for this many more."""
        self._held += count
        return self._held <= self._most

    def release(self, count: int) -> None:
        self._held -= count


class ProgramSocket:
    """The program's end of a WebSocket. A program that reads nothing for `timeout_sec` is
    disconnected: while we wait for it, we can't notice that the client has left."""

    def __init__(
        self,
        connection: PortConnection,
        held: HeldBytes,
        held_of_clients: HeldBytes,
        timeout_sec: float,
    ) -> None:
        self._reader = connection.reader
        self._writer = connection.writer
        self._held = held
        self._held_of_clients = held_of_clients
        self._own_bytes = 0
        self._timeout_sec = timeout_sec
        self._wire: ClientProtocol
        self._message: list[bytes] = []
        self._is_text = False
        self.subprotocol: str | None = None

    async def open(
        self,
        target: str,
        headers: Sequence[tuple[bytes, bytes]],
        subprotocols: Sequence[Any],
    ) -> None:
        """Raises HandshakeRefusedError, ProgramAnswerError, ProgramBrokeOffError,
        ProgramTimeoutError."""
        uri = parse_uri(f"ws://program{target}")
        self._wire = ClientProtocol(uri, subprotocols=subprotocols or None, max_size=MESSAGE_BYTES)
        request = self._wire.connect()
        del request.headers["Host"]
        for raw_name, value in headers:
            request.headers[raw_name.decode("latin-1")] = value.decode("latin-1")
        self._wire.send_request(request)
        try:
            async with asyncio.timeout(self._timeout_sec):
                await self._shake_hands()
        except TimeoutError as error:
            raise ProgramTimeoutError from error
        self.subprotocol = self._wire.subprotocol

    async def _shake_hands(self) -> None:
        events: list[Any] = []
        while not events:
            await self._exchange()
            events = self._wire.events_received()
            if not events and self._wire.state is State.CLOSED:
                raise ProgramBrokeOffError
        if isinstance(events[0], Response) and events[0].status_code != 101:
            raise HandshakeRefusedError(events[0].status_code)
        if self._wire.handshake_exc is not None:
            is_answer = isinstance(self._wire.handshake_exc, InvalidHandshake)
            raise ProgramAnswerError if is_answer else ProgramBrokeOffError
        self._early: list[Frame] = events[1:]

    async def send(self, message: Any) -> None:
        """Forward one message of the client, which is buffered until the program has accepted
        it."""
        text, data = message.get("text"), message.get("bytes") or b""
        data = data if text is None else text.encode()
        try:
            if not self._held_of_clients.add(len(data)):
                raise HeldTooMuchError
            if text is not None:
                self._wire.send_text(data)
            else:
                self._wire.send_binary(data)
            await self._flush()
        finally:
            self._held_of_clients.release(len(data))

    async def close(self, code: int) -> None:
        with suppress(OSError):
            if self._wire.state is State.OPEN:
                self._wire.send_close(CloseCode.GOING_AWAY if code in _UNSENDABLE else code)
                await self._flush()

    async def receive(self) -> dict[str, Any] | None:
        """The program's next message, in ASGI form; None when closed. The previous one has been
        delivered by now."""
        self._release()
        while True:
            for index, frame in enumerate(self._early):
                if (message := self._assemble(frame)) is not None:
                    self._early = self._early[index + 1 :]
                    return message
            self._early = []
            if self._wire.state is State.CLOSED:
                return None
            await self._exchange()
            self._early = [each for each in self._wire.events_received() if isinstance(each, Frame)]

    @property
    def close_code(self) -> int:
        """1006 if the program broke off: no server may send that, so a browser tells its page of an
        unclean end, as without us. Vite's pages reload only after one."""
        code = self._wire.close_code or CloseCode.INTERNAL_ERROR
        return CloseCode.NORMAL_CLOSURE if code == CloseCode.NO_STATUS_RCVD else code

    def _assemble(self, frame: Frame) -> dict[str, Any] | None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return None
        if frame.opcode is not Opcode.CONT:
            self._message, self._is_text = [], frame.opcode is Opcode.TEXT
        self._message.append(bytes(frame.data))
        if not frame.fin:
            return None
        whole, self._message = b"".join(self._message), []
        if self._is_text:
            return {"type": "websocket.send", "text": whole.decode(errors="replace")}
        return {"type": "websocket.send", "bytes": whole}

    async def _exchange(self) -> None:
        """Send pending data, and read what has arrived."""
        await self._flush()
        data = b""
        with suppress(OSError):
            data = await self._reader.read(_PIECE_BYTES)
        if data:
            self._wire.receive_data(data)
            self._own_bytes += len(data)
            if not self._held.add(len(data)):
                self._wire.fail(CloseCode.MESSAGE_TOO_BIG)
        else:
            self._wire.receive_eof()
        await self._flush()

    def _release(self) -> None:
        self._held.release(self._own_bytes)
        self._own_bytes = 0

    async def _flush(self) -> None:
        for piece in self._wire.data_to_send():
            if piece:
                self._writer.write(piece)
            elif self._writer.can_write_eof():
                self._writer.write_eof()
        with suppress(ConnectionError):
            async with asyncio.timeout(self._timeout_sec):
                await self._writer.drain()

    def abort(self) -> None:
        self._release()
        self._writer.transport.abort()


async def pass_messages(
    socket: ProgramSocket,
    receive: Receive,
    send: Send,
    until_refused: Callable[[], Coroutine[Any, Any, NoReturn]],
) -> None:
    """Both ways, until one side closes (the other is closed with the same code), or until the
    client's access ends."""
    from_client = asyncio.create_task(_from_client(socket, receive))
    from_program = asyncio.create_task(_from_program(socket, send))
    refused = asyncio.create_task(until_refused())
    tasks = (from_client, from_program, refused)
    code = None
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not from_client.done():
            code = CloseCode.POLICY_VIOLATION if refused.done() else socket.close_code
        elif (failure := from_client.exception()) is not None:
            is_too_big = isinstance(failure, HeldTooMuchError)
            code = CloseCode.MESSAGE_TOO_BIG if is_too_big else socket.close_code
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        socket.abort()
    if code is not None:  # only now: the server does not close during a pending receive
        await send({"type": "websocket.close", "code": code})


async def _from_client(socket: ProgramSocket, receive: Receive) -> None:
    while (message := await receive())["type"] != "websocket.disconnect":
        await socket.send(message)
    await socket.close(message.get("code") or CloseCode.NORMAL_CLOSURE)


async def _from_program(socket: ProgramSocket, send: Send) -> None:
    while (message := await socket.receive()) is not None:
        await send(message)
