"""Requests and answers pass through whole, as streams, and without what is of one connection."""

import asyncio
import hashlib
from contextlib import suppress

import h11
import pytest

from tests.integration.gateway.programs import Seen, answering, in_box, page, read_request
from tests.support.servers.connections import connected
from tests.support.servers.gateway import GatewayServer, read_answer

LARGE = 50 * 2**20
PIECE = bytes(range(256)) * 1024


async def test_a_request_arrives_as_it_was_sent(server: GatewayServer) -> None:
    seen = Seen()
    async with in_box(server, answering(page("made", "X-Own: 1", status="201 Created"), seen)):
        answer = await server.request(
            "PUT", "/a%2Fb/../c?x=%41&y", headers=[("X-Any", "thing")], body=b"hello"
        )
    assert (answer.status, answer.body, answer.header("x-own")) == (201, b"made", "1")
    assert (seen.method, seen.target, seen.body) == ("PUT", "/a%2Fb/../c?x=%41&y", b"hello")
    assert seen.header("x-any") == "thing"
    assert seen.header("host") == server.host()
    assert seen.header("x-forwarded-for") == "127.0.0.1"
    assert seen.header("x-forwarded-host") == server.host()
    assert seen.header("x-forwarded-proto") == "http"
    assert seen.header("x-request-id") == answer.header("x-request-id")


async def test_header_names_reach_the_program_in_their_usual_case(server: GatewayServer) -> None:
    seen, sent = Seen(), ["content-type", "X-B3TraceId", "ETAG"]
    async with in_box(server, answering(page("ok", "X-Own-Name: 1"), seen)):
        answer = await server.request("PUT", headers=[(each, "1") for each in sent], body=b"a")
    expected = ["Content-Type", "X-B3traceid", "Etag", "Content-Length", "Connection"]
    assert set(seen.names) >= {"Host", "X-Forwarded-For", "X-Request-Id", *expected}
    assert all(name == "-".join(map(str.capitalize, name.split("-"))) for name in seen.names)
    assert answer.header("x-own-name") == "1"


async def test_the_program_is_called_by_the_name_that_it_expects(server: GatewayServer) -> None:
    seen = Seen()
    async with in_box(server, answering(page(""), seen)):
        server.boxes.machines[next(iter(server.boxes.machines))].host = "3000-x.e2b.example"
        await server.request()
    assert seen.header("host") == "3000-x.e2b.example"


async def test_headers_of_one_connection_stay_behind(server: GatewayServer) -> None:
    seen = Seen()
    sent = [
        ("Connection", "keep-alive, X-Hop"),
        ("X-Hop", "1"),
        ("TE", "trailers"),
        ("Proxy-Authorization", "Basic x"),
        ("X-Forwarded-For", "6.6.6.6"),
        ("Forwarded", "for=6.6.6.6"),
    ]
    told = page("ok", "Connection: X-Mine", "X-Mine: 1", "Keep-Alive: timeout=5", "Upgrade: h2c")
    async with in_box(server, answering(told, seen)):
        answer = await server.request(headers=sent)
    names = {name for name, _ in seen.headers}
    assert not names & {"x-hop", "te", "proxy-authorization", "forwarded"}
    assert seen.header("connection") == "close"
    assert seen.header("x-forwarded-for") == "127.0.0.1"
    assert [answer.header(each) for each in ("x-mine", "keep-alive", "upgrade")] == [None] * 3


async def test_answers_have_no_headers_of_ours_that_would_change_them(
    server: GatewayServer,
) -> None:
    """A preview is shown in a frame and loads what it likes: it is an origin of its own."""
    async with in_box(server, answering(page("ok"))):
        answer = await server.request()
    ours = ("x-frame-options", "content-security-policy", "cache-control")
    assert [answer.header(each) for each in ours] == [None] * 3


async def test_50_mb_come_down_as_a_stream(server: GatewayServer) -> None:
    async def send_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, Seen())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LARGE)
        for _ in range(LARGE // len(PIECE)):
            writer.write(PIECE)
            await writer.drain()

    async with in_box(server, send_all):
        answer = await server.request()
    assert answer.is_whole
    expected = hashlib.sha256(PIECE * (LARGE // len(PIECE)))
    assert hashlib.sha256(answer.body).digest() == expected.digest()


async def test_50_mb_go_up_as_a_stream(server: GatewayServer) -> None:
    """Chunked: nobody knows beforehand how much it is."""
    taken = hashlib.sha256()

    async def take_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = h11.Connection(h11.SERVER)
        while not isinstance(event := wire.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                wire.receive_data(await reader.read(1 << 18))
            elif isinstance(event, h11.Data):
                taken.update(event.data)
        writer.write(page("taken"))

    async with in_box(server, take_all), connected(server.port) as (reader, writer):
        wire = h11.Connection(h11.CLIENT)
        headers = [("Host", server.host()), ("Transfer-Encoding", "chunked")]
        writer.write(wire.send(h11.Request(method="POST", target="/", headers=headers)) or b"")
        for _ in range(LARGE // len(PIECE)):
            writer.write(wire.send(h11.Data(data=PIECE)) or b"")
            await writer.drain()
        writer.write(wire.send(h11.EndOfMessage()) or b"")
        answer = await read_answer(reader, wire)
    assert answer.body == b"taken"
    assert taken.digest() == hashlib.sha256(PIECE * (LARGE // len(PIECE))).digest()


async def test_a_slow_client_holds_the_program_up_and_nobody_else(server: GatewayServer) -> None:
    """What a client does not take is not taken from the program either."""
    written = 0
    is_held = asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await read_request(reader, Seen())
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(PIECE)
            written += len(PIECE)
            try:
                async with asyncio.timeout(1):
                    await writer.drain()
            except TimeoutError:
                is_held.set()
                return

    async with in_box(server, flood), connected(server.port, limit=1024) as (reader, writer):
        writer.write(f"GET / HTTP/1.1\r\nHost: {server.host()}\r\n\r\n".encode())
        await reader.readline()
        async with asyncio.timeout(20):
            await is_held.wait()
    assert written < 100 * 2**20


async def test_an_answer_may_come_before_all_of_the_body(server: GatewayServer) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(page("too large", status="413 Too Large"))
        await writer.drain()
        await reader.read()  # as if it did not care for the rest

    async with in_box(server, refuse), connected(server.port) as (reader, writer):
        wire = h11.Connection(h11.CLIENT)
        headers = [("Host", server.host()), ("Content-Length", str(10**9))]
        writer.write(wire.send(h11.Request(method="POST", target="/", headers=headers)) or b"")
        writer.write(b"some of it")
        answer = await read_answer(reader, wire)
    assert (answer.status, answer.body) == (413, b"too large")


async def test_who_expects_to_be_asked_for_the_body_is_asked(server: GatewayServer) -> None:
    seen = Seen()
    async with in_box(server, answering(page("ok"), seen)):
        answer = await server.request(
            "POST", headers=[("Expect", "100-continue")], body=b"after all"
        )
    assert (answer.early, answer.status) == ([100], 200)
    assert (seen.header("expect"), seen.body) == (None, b"after all")


@pytest.mark.parametrize(
    ("method", "said", "status", "length"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", 200, "99"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204, None),
        ("GET", b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n', 304, None),
    ],
)
async def test_answers_without_a_body(
    server: GatewayServer, method: str, said: bytes, status: int, length: str | None
) -> None:
    async with in_box(server, answering(said)):
        answer = await server.request(method)
    assert (answer.status, answer.body, answer.header("content-length")) == (status, b"", length)


async def test_trailers_and_early_hints_are_dropped(server: GatewayServer) -> None:
    said = (
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
        b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
    )
    async with in_box(server, answering(said)):
        answer = await server.request()
    assert (answer.status, answer.body, answer.early) == (200, b"hello", [])
    assert answer.is_whole
    assert answer.header("x-sum") is None


async def test_a_client_that_leaves_ends_the_request_inside(server: GatewayServer) -> None:
    seen = Seen()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader, seen)
        with suppress(ConnectionError):
            await reader.read()
        seen.left.set()

    async with in_box(server, wait):
        async with asyncio.timeout(10):
            async with connected(server.port) as (_, writer):
                writer.write(f"GET / HTTP/1.1\r\nHost: {server.host()}\r\n\r\n".encode())
                await seen.arrived.wait()
            await seen.left.wait()
