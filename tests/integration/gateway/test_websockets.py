"""WebSockets pass through, message by message, and end with the code that one side gave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.fakes.gateway_targets import Box, Owner
from tests.integration.gateway.programs import answering, in_box, page
from tests.support.servers.gateway import BOX, OWNER, GatewayServer


@asynccontextmanager
async def socket_in_box(
    server: GatewayServer, handle: Any, *, is_public: bool = True, **options: Any
) -> AsyncIterator[None]:
    async with serve(handle, "127.0.0.1", 0, max_size=None, **options) as program:
        at = next(iter(program.sockets)).getsockname()[1]
        server.boxes.add(BOX, OWNER, port=3000, at=at, is_public=is_public)
        yield


def opened(server: GatewayServer, path: str = "/", **options: Any) -> connect:
    uri = f"ws://{server.host()}{path}"
    return connect(uri, host="127.0.0.1", port=server.port, max_size=None, **options)


async def echo(socket: ServerConnection) -> None:
    async for message in socket:
        await socket.send(message)


async def test_messages_of_both_kinds_and_any_size_come_back(server: GatewayServer) -> None:
    async with socket_in_box(server, echo), opened(server) as socket:
        for message in ("hällo", b"\0\xff", "", b"x" * 2_000_000):
            await socket.send(message)
            assert await socket.recv() == message


async def test_a_message_in_fragments_arrives_whole(server: GatewayServer) -> None:
    async def send_fragments(socket: ServerConnection) -> None:
        await socket.send(["one ", "two ", "three"])

    async with socket_in_box(server, send_fragments), opened(server) as socket:
        assert await socket.recv() == "one two three"


async def test_path_subprotocol_and_headers_reach_the_program(server: GatewayServer) -> None:
    async def tell(socket: ServerConnection) -> None:
        assert socket.request is not None
        headers = socket.request.headers
        told = [socket.request.path, headers["Host"], headers["Origin"], headers["X-Forwarded-For"]]
        names = {name for name, _ in headers.raw_items()}
        assert names >= {"Host", "Origin", "X-Forwarded-For", "Upgrade"}
        await socket.send(" ".join([*told, str("X-Access-Token" in headers)]))

    origin: Any = f"http://{server.host()}"
    async with (
        socket_in_box(server, tell, subprotocols=["vite-hmr"], is_public=False),
        opened(
            server,
            "/hmr?x=1",
            subprotocols=["other", "vite-hmr"],
            origin=origin,
            additional_headers={"X-Access-Token": server.token()},
        ) as socket,
    ):
        assert socket.subprotocol == "vite-hmr"
        assert await socket.recv() == f"/hmr?x=1 {server.host()} {origin} 127.0.0.1 False"


async def test_each_side_hears_how_the_other_ended(server: GatewayServer) -> None:
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def listen(socket: ServerConnection) -> None:
        assert await socket.recv() == "bye"
        await socket.close(4001, "had enough")

    async with socket_in_box(server, listen), opened(server) as socket:
        await socket.send("bye")
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4001

    async def wait(socket: ServerConnection) -> None:
        await socket.wait_closed()
        ended.set_result(socket.close_code or 0)

    async with socket_in_box(server, wait):
        async with opened(server) as socket:
            await socket.close(4002)
        assert await asyncio.wait_for(ended, 10) == 4002


async def test_a_socket_whose_program_is_killed_ends_uncleanly(server: GatewayServer) -> None:
    async def die(socket: ServerConnection) -> None:
        await socket.recv()
        socket.transport.abort()

    async with socket_in_box(server, die), opened(server) as socket:
        await socket.send("now")
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert (socket.close_code, closed.value.rcvd) == (1006, None)


async def test_a_program_without_a_socket_there_refuses_with_its_own_status(
    server: GatewayServer,
) -> None:
    async with in_box(server, answering(page("", status="404 Not Found"))):
        assert await refused(opened(server)) == 404


async def test_a_program_that_speaks_no_http_is_502(server: GatewayServer) -> None:
    async with in_box(server, answering(b"nonsense\r\n\r\n")):
        assert await refused(opened(server)) == 502


async def test_our_own_paths_without_a_socket_are_404(server: GatewayServer) -> None:
    uri = f"ws://127.0.0.1:{server.port}/anything"
    assert await refused(connect(uri)) == 404


async def refused(attempt: connect) -> int:
    with pytest.raises(InvalidStatus) as error:
        await attempt
    return error.value.response.status_code


async def test_one_that_was_made_private_closes_to_strangers(server: GatewayServer) -> None:
    async with socket_in_box(server, echo):
        with_token = {"X-Access-Token": server.token()}
        async with opened(server) as stranger, opened(server, additional_headers=with_token) as own:
            server.boxes.boxes[BOX] = Box(OWNER, is_public=False)
            server.clock.advance(3600)  # a token that expires meanwhile ends nothing
            with pytest.raises(ConnectionClosed) as closed:
                async with asyncio.timeout(20):
                    await stranger.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
            await own.send("still here")
            assert await own.recv() == "still here"
            server.owners.owners[OWNER] = Owner(token_version=1)
            with pytest.raises(ConnectionClosed):
                async with asyncio.timeout(20):
                    await own.recv()
