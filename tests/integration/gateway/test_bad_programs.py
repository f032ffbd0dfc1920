"""Programs that stall, break off, flood or talk nonsense harm nobody, and the client is told."""

import asyncio

import orjson
import pytest

from tests.integration.gateway.programs import Seen, answering, in_box, page, read_request
from tests.support.servers.gateway import BOX, OWNER, Answer, GatewayServer, gateway_server


def code_of(answer: Answer) -> tuple[int, str]:
    return answer.status, orjson.loads(answer.body)["error"]["code"]


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nBad Name: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
)
async def test_a_malformed_response_of_a_program_is_502(server: GatewayServer, said: bytes) -> None:
    async with in_box(server, answering(said)):
        assert code_of(await server.request()) == (502, "PROGRAM_ANSWER_MALFORMED")


async def test_a_connection_that_ends_before_the_answer_is_502(server: GatewayServer) -> None:
    async with in_box(server, answering(b"")):
        assert code_of(await server.request()) == (502, "PROGRAM_BROKE_OFF")


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    ],
)
async def test_half_an_answer_is_never_told_as_whole(server: GatewayServer, said: bytes) -> None:
    async with in_box(server, answering(said)):
        answer = await server.request()
    assert (answer.status, answer.is_whole) == (200, False)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_one_that_stalls_before_its_answer_is_504(said: bytes) -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, Seen())
        writer.write(said)
        await reader.read()

    async with gateway_server(timeout_sec=0.3) as server, in_box(server, stall):
        assert code_of(await server.request()) == (504, "PROGRAM_TIMEOUT")


async def test_a_port_that_nothing_listens_on_is_502(server: GatewayServer) -> None:
    async with in_box(server, answering(page("ok"))):
        answer = await server.request(host=server.host(port=4000))
    assert code_of(answer) == (502, "PORT_NOT_LISTENING")


async def test_one_sandbox_takes_no_more_than_its_connections() -> None:
    seen = Seen()

    async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_request(reader, seen)
        await reader.read()

    async with gateway_server(connections=1) as server, in_box(server, wait):
        first = asyncio.create_task(server.request())
        await asyncio.wait_for(seen.arrived.wait(), 10)
        assert code_of(await server.request()) == (429, "TOO_MANY_CONNECTIONS")
        first.cancel()


async def test_a_stopped_one_says_so_to_programs_and_to_people(server: GatewayServer) -> None:
    server.boxes.add(BOX, OWNER, port=3000, at=1, is_public=True, is_running=False)
    answer = await server.request()
    assert code_of(answer) == (502, "SANDBOX_NOT_RUNNING")
    assert b"This sandbox is stopped." in answer.body
    page = await server.request(headers=[("Accept", "text/html,*/*;q=0.8")])
    assert page.header("content-type") == "text/html; charset=utf-8"
    assert b"<h1>This sandbox is stopped.</h1>" in page.body


async def test_a_request_starts_one_that_wakes(server: GatewayServer) -> None:
    async with in_box(server, answering(page("up")), is_running=False, wakes=True):
        assert (await server.request()).body == b"up"
    assert server.boxes.woken == 1
