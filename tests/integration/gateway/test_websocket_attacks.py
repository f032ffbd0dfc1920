"""WebSockets of clients and programs that mean harm: nobody else notices, and nothing is left."""

import asyncio
import base64
import os
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from sandyard.gateway.credentials import TARGET_COOKIE
from sandyard.kit.clock import utc_time
from sandyard.kit.sizes import MESSAGE_BYTES
from tests.integration.gateway.programs import Seen, answering, in_box, page
from tests.integration.gateway.test_access import cookie_in, cookie_of
from tests.integration.gateway.test_websockets import echo, opened, refused, socket_in_box
from tests.support.servers.connections import Streams, connected
from tests.support.servers.gateway import (
    BOX,
    OTHER_BOX,
    OWNER,
    STRANGER,
    GatewayServer,
    gateway_server,
)

_TEXT, _BINARY, _CLOSE, _PING = 1, 2, 8, 9


def frame(opcode: int, data: bytes, *, head: int = 0x80, mask: bytes | None = b"mask") -> bytes:
    """By hand, so that it may be wrong."""
    size = len(data)
    bit = 0x80 if mask is not None else 0
    if size < 126:
        length = bytes([bit | size])
    elif size < 1 << 16:
        length = bytes([bit | 126]) + struct.pack("!H", size)
    else:
        length = bytes([bit | 127]) + struct.pack("!Q", size)
    if mask is not None:
        data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
    return bytes([head | opcode]) + length + (mask or b"") + data


def handshake(
    server: GatewayServer, *lines: str, method: str = "GET", version: str = "13"
) -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {key}")
    told = (*upgrade, f"Sec-WebSocket-Version: {version}", f"Host: {server.host()}", *lines)
    return (f"{method} / HTTP/1.1\r\n" + "\r\n".join(told) + "\r\n\r\n").encode()


@asynccontextmanager
async def wire(server: GatewayServer) -> AsyncIterator[Streams]:
    """A connection whose handshake is done."""
    async with connected(server.port) as (reader, writer):
        writer.write(handshake(server))
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        yield reader, writer


async def until_idle(server: GatewayServer) -> None:
    """Until the gateway has let go of every connection."""
    async with asyncio.timeout(10):
        while server.gateway.connections(BOX):
            await asyncio.sleep(0.02)


async def answers(server: GatewayServer) -> bool:
    """Whether another sandbox is still served."""
    async with in_box(server, answering(page("ok")), target_id=OTHER_BOX):
        return (await server.request(host=server.host(OTHER_BOX))).status == 200


@pytest.mark.parametrize(
    "origin", [None, "null", "http://[::1", "https://{host}", "http://{other}"]
)
async def test_a_cookie_alone_opens_no_socket(server: GatewayServer, origin: str | None) -> None:
    async with socket_in_box(server, echo, is_public=False):
        names = {"host": server.host(), "other": server.host(OTHER_BOX)}
        headers = {"Cookie": f"{TARGET_COOKIE}={await cookie_of(server)}"}
        sent: Any = None if origin is None else origin.format(**names)
        assert await refused(opened(server, additional_headers=headers, origin=sent)) == 403


async def test_a_socket_is_not_opened_by_what_opens_something_else(server: GatewayServer) -> None:
    over = utc_time(server.clock.now()) - timedelta(seconds=1)
    async with socket_in_box(server, echo, is_public=False):
        for token in (
            server.token(OTHER_BOX),
            server.token(expires_at=over),
            server.token(account_id=STRANGER),
            server.token(token_version=1),
        ):
            assert await refused(opened(server, f"/?sandyard_token={token}")) == 401
            by_header = {"X-Access-Token": token}
            assert await refused(opened(server, additional_headers=by_header)) == 401
        server.boxes.add(OTHER_BOX, OWNER, port=3000, at=1, is_public=False)
        link = f"/?sandyard_token={server.token(OTHER_BOX)}"
        given = await server.request(path=link, host=server.host(OTHER_BOX))
        stolen = {
            "Cookie": f"{TARGET_COOKIE}={cookie_in(given)}",
            "Origin": f"http://{server.host()}",
        }
        assert await refused(opened(server, additional_headers=stolen)) == 401


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param({"method": "POST"}, id="by POST"),
        pytest.param({"version": "12"}, id="of an older version"),
        pytest.param({"lines": ["Content-Length: 40"]}, id="with a body"),
        pytest.param({"lines": ["Transfer-Encoding: chunked"]}, id="with pieces"),
        pytest.param({"lines": ["Upgrade: h2c"]}, id="to two protocols"),
    ],
)
async def test_no_request_is_smuggled_behind_a_handshake(
    server: GatewayServer, sent: dict[str, Any]
) -> None:
    """What follows the head is never a request of its own, for the program or for the gateway."""
    seen = Seen()
    lines = sent.pop("lines", [])
    inner = f"GET /smuggled HTTP/1.1\r\nHost: {server.host()}\r\n\r\n".encode()
    box = in_box(server, answering(page("smuggled"), seen))
    async with box, connected(server.port) as (reader, writer):
        writer.write(handshake(server, *lines, **sent) + inner)
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await reader.read(1 << 16)
    assert seen.target != "/smuggled"


async def test_an_ordinary_request_does_not_become_a_tunnel(server: GatewayServer) -> None:
    """A program that answers 101 to one gets nothing of what the client sends later."""
    switching = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: raw\r\nConnection: Upgrade\r\n\r\n"
    async with in_box(server, answering(switching)):
        assert (await server.request()).status == 502


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(frame(_TEXT, b"\xff\xfe"), id="no UTF-8"),
        pytest.param(frame(_TEXT, b"x", mask=None), id="unmasked"),
        pytest.param(frame(_TEXT, b"x", head=0xC0), id="a bit that means nothing"),
        pytest.param(frame(3, b"x"), id="a kind that there is not"),
        pytest.param(frame(_PING, b"x" * 126), id="a long ping"),
        pytest.param(frame(_PING, b"x", head=0), id="half a ping"),
        pytest.param(frame(0, b"x"), id="a continuation of nothing"),
        pytest.param(frame(_CLOSE, b"\0"), id="half a code"),
        pytest.param(frame(_CLOSE, struct.pack("!H", 1005)), id="a code that is never sent"),
        pytest.param(b"\x82\xff" + b"\x7f" + b"\xff" * 7 + b"mask", id="longer than there is"),
    ],
)
async def test_an_invalid_frame_closes_the_socket(server: GatewayServer, sent: bytes) -> None:
    got: list[Any] = []

    async def keep(socket: ServerConnection) -> None:
        got.extend([message async for message in socket])

    async with socket_in_box(server, keep):
        async with wire(server) as (reader, writer):
            writer.write(sent)
            async with asyncio.timeout(10):
                await reader.read()  # to its end
        await until_idle(server)
    assert got == []


async def test_a_flood_of_pings_is_answered_and_forgotten(server: GatewayServer) -> None:
    async with socket_in_box(server, echo):
        async with wire(server) as (reader, writer):
            flood = frame(_PING, b"x" * 100) * 500
            for _ in range(20):
                writer.write(flood)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await reader.read(1 << 20)
            assert await answers(server)
        await until_idle(server)


@asynccontextmanager
async def taking_nothing(server: GatewayServer) -> AsyncIterator[None]:
    """A program that reads nothing of what its clients send."""
    is_over = asyncio.Event()

    async def wait(socket: ServerConnection) -> None:
        socket.transport.pause_reading()
        await is_over.wait()
        socket.transport.abort()

    async with socket_in_box(server, wait, close_timeout=0.1):
        try:
            yield
        finally:
            is_over.set()


async def test_a_client_that_leaves_a_program_that_takes_nothing() -> None:
    """It is not seen while the gateway waits for the program, and so that has an end."""

    async with gateway_server(timeout_sec=1) as server, taking_nothing(server):
        async with wire(server) as (_, writer):
            for _ in range(64):
                writer.write(frame(_BINARY, bytes(1 << 18), mask=b"\0\0\0\0"))
            await asyncio.sleep(0.2)
        await until_idle(server)


async def test_a_program_that_takes_nothing_is_told_to_a_client_that_stays() -> None:
    async with gateway_server(timeout_sec=1) as server, taking_nothing(server):
        async with opened(server) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                await overfill(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1011


async def test_clients_of_a_program_that_takes_nothing_have_room_for_so_much() -> None:
    async with (
        gateway_server(timeout_sec=20, held_bytes=8 << 20) as server,
        taking_nothing(server),
        opened(server) as first,
        opened(server) as second,
    ):
        await first.send(bytes(7 << 20))
        await asyncio.sleep(0.5)
        await second.send(bytes(7 << 20))
        with pytest.raises(ConnectionClosed) as closed:
            async with asyncio.timeout(10):
                await second.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        assert await answers(server)


async def test_a_message_that_is_too_large_closes_its_socket(server: GatewayServer) -> None:
    async with socket_in_box(server, echo):
        async with opened(server) as socket:
            await socket.send(bytes(MESSAGE_BYTES))
            assert len(await socket.recv()) == MESSAGE_BYTES
            await socket.send([bytes(MESSAGE_BYTES), b"1"])
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        await until_idle(server)


async def overfill(socket: ClientConnection) -> None:
    async with asyncio.timeout(10):
        for _ in range(64):
            await socket.send(bytes(1 << 18))
        await socket.recv()


async def test_a_program_begins_no_more_messages_than_there_is_room_for() -> None:
    async def begin(socket: ServerConnection) -> None:
        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield bytes(1 << 16)
                await asyncio.sleep(0)

        with suppress(ConnectionClosed):
            await socket.send(endless())

    async with gateway_server(held_bytes=4 << 20) as server, socket_in_box(server, begin):
        async with opened(server) as first, opened(server) as second:
            for socket in (first, second):
                with pytest.raises(ConnectionClosed):
                    async with asyncio.timeout(20):
                        await socket.recv()
        assert await answers(server)
        await until_idle(server)


async def test_a_slow_reader_holds_its_own_program_up_alone(server: GatewayServer) -> None:
    sent = 0

    async def flood(socket: ServerConnection) -> None:
        nonlocal sent
        with suppress(ConnectionClosed):
            while True:
                await socket.send(bytes(1 << 16))
                sent += 1 << 16

    async with socket_in_box(server, flood):
        async with wire(server):
            stopped_at = -1
            while stopped_at != sent < 64 << 20:
                stopped_at = sent
                await asyncio.sleep(1)
            assert await answers(server)
            assert sent - stopped_at <= 2 << 20, "it stops when nobody takes anything"
            assert sent < 64 << 20
        await until_idle(server)


async def test_half_a_handshake_takes_nothing_from_others(server: GatewayServer) -> None:
    async with socket_in_box(server, echo), AsyncExitStack() as stack:
        begun = handshake(server)
        for at in range(200):
            _, writer = await stack.enter_async_context(connected(server.port))
            writer.write(begun[: 20 + at % 100])
        async with opened(server) as socket:
            await socket.send("in")
            assert await socket.recv() == "in"
        assert server.gateway.connections(BOX) <= 1


async def test_thousands_of_messages_pass_in_order(server: GatewayServer) -> None:
    async with socket_in_box(server, echo), wire(server) as (reader, writer):
        writer.write(b"".join(frame(_TEXT, b"%05d" % number) for number in range(5000)))
        async with asyncio.timeout(30):
            echoed = await reader.readexactly(5000 * 7)
    assert [int(echoed[at + 2 : at + 7]) for at in range(0, len(echoed), 7)] == [*range(5000)]
