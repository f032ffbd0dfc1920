"""Unfinished messages of WebSockets: what is held of them, and which connections are broken off."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sandyard.entrypoints.server.connections import Connection, ConnectionLimits, ConnectionPolicy
from sandyard.entrypoints.server.listeners import Listener
from sandyard.entrypoints.server.websocket_intake import (
    TOGETHER_BYTES,
    UnfinishedMessages,
    WebSocketIntake,
)
from sandyard.kit.free_ports import free_port
from sandyard.kit.sizes import MESSAGE_BYTES
from tests.support.servers.connections import Streams, connected

MB = 1 << 20
REASON = "its unfinished WebSocket message is too large"


class Client:
    """One WebSocket, of which so much was received and came out."""

    def __init__(self, intake: WebSocketIntake, number: int, stack: contextlib.ExitStack) -> None:
        self._number = number
        self._received = 0
        self._messages: list[bytes] = []
        scope = {"client": ("192.0.2.1", str(number))}
        self._socket = stack.enter_context(intake.opened(scope, self._receive, self._send))

    @property
    def connection(self) -> Connection:
        peer = ("192.0.2.1", self._number)
        return Connection(self._number, "192.0.2.1", 0, received_bytes=self._received, peer=peer)

    async def finish(self, size: int, wire: int | None = None) -> Any:
        self._received += size + 14 if wire is None else wire
        self._messages.append(bytes(size))
        return await self._socket.receive()

    def send_part(self, size: int) -> None:
        self._received += size

    async def _receive(self) -> Any:
        return {"type": "websocket.receive", "bytes": self._messages.pop()}

    async def _send(self, message: Any) -> None:
        assert message == {"type": "websocket.close", "code": 1009}


@pytest.fixture
def stack() -> Any:
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def intake() -> WebSocketIntake:
    return WebSocketIntake()


async def test_what_is_whole_is_not_held(
    intake: WebSocketIntake, stack: contextlib.ExitStack
) -> None:
    unfinished, client = UnfinishedMessages(intake), Client(intake, 1, stack)
    for _ in range(10):
        for _ in range(4):
            await client.finish(10 * MB)
            await client.finish(1, wire=36)
        assert unfinished.find([client.connection]) == {}


async def test_an_unfinished_one_is_counted_over_looks(
    intake: WebSocketIntake, stack: contextlib.ExitStack
) -> None:
    unfinished, client = UnfinishedMessages(intake), Client(intake, 1, stack)
    await client.finish(10 * MB)
    for _ in range(8):
        client.send_part(2 * MB)
        assert unfinished.find([client.connection]) == {}
    client.send_part(2 * MB)
    assert unfinished.find([client.connection]) == {client.connection: REASON}


async def test_one_that_came_together_with_a_whole_one_is_counted(
    intake: WebSocketIntake, stack: contextlib.ExitStack
) -> None:
    unfinished, client = UnfinishedMessages(intake), Client(intake, 1, stack)
    await client.finish(1)
    client.send_part(20 * MB)
    assert unfinished.find([client.connection]) == {client.connection: REASON}


async def test_of_many_the_largest_go_until_there_is_room(
    intake: WebSocketIntake, stack: contextlib.ExitStack
) -> None:
    unfinished = UnfinishedMessages(intake)
    clients = [Client(intake, number, stack) for number in range(1, 41)]
    for number, client in enumerate(clients):
        client.send_part(10 * MB + number)
    chosen = unfinished.find([each.connection for each in clients])
    kept = TOGETHER_BYTES // (10 * MB)
    assert [*chosen] == [each.connection for each in reversed(clients[kept:])]


async def test_what_is_no_websocket_is_left_alone(intake: WebSocketIntake) -> None:
    upload = Connection(1, "192.0.2.1", 0, received_bytes=1 << 30, peer=("192.0.2.1", 1))
    assert UnfinishedMessages(intake).find([upload]) == {}


async def test_a_large_message_is_not_passed_on(
    intake: WebSocketIntake, stack: contextlib.ExitStack
) -> None:
    client = Client(intake, 1, stack)
    assert (await client.finish(MESSAGE_BYTES))["type"] == "websocket.receive"
    closed = await client.finish(MESSAGE_BYTES + 1)
    assert closed == {"type": "websocket.disconnect", "code": 1009}


@pytest.fixture
async def port(intake: WebSocketIntake) -> AsyncIterator[int]:
    """A server that takes whatever its clients send."""

    async def take(scope: Any, receive: Any, send: Any) -> None:
        with intake.opened(scope, receive, send) as socket:
            await socket.receive()
            await socket.send({"type": "websocket.accept"})
            while (await socket.receive())["type"] != "websocket.disconnect":
                await socket.send({"type": "websocket.send", "text": "taken"})

    listener = Listener(take, host="127.0.0.1", port=free_port())
    await listener.start()
    yield listener.port
    await listener.stop()


async def test_who_begins_a_message_without_end_is_broken_off(
    intake: WebSocketIntake, port: int
) -> None:
    policy = ConnectionPolicy(most=100, most_per_address=100, write_timeout_sec=30)
    limits = ConnectionLimits(port, policy, find_more=UnfinishedMessages(intake).find)
    async with opened(port) as (reader, writer), opened(port) as (other_reader, other):
        begun = 0x02
        for _ in range(20):
            writer.write(frame(begun, bytes(MB)))
            begun = 0x00
        await writer.drain()
        other.write(frame(0x82, bytes(MB)))
        assert b"taken" in await other_reader.readuntil(b"taken")
        async with asyncio.timeout(10):
            while not limits.enforce():  # until the server has read it all
                await asyncio.sleep(0.05)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        other.write(frame(0x82, bytes(MB)))
        assert b"taken" in await other_reader.readuntil(b"taken")
        assert limits.enforce() == 0


@contextlib.asynccontextmanager
async def opened(port: int) -> AsyncIterator[Streams]:
    async with connected(port) as (reader, writer):
        writer.write(
            b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        yield reader, writer


def frame(head: int, data: bytes) -> bytes:
    return bytes([head, 0xFF]) + struct.pack("!Q", len(data)) + bytes(4) + data
