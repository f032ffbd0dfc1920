"""Host tricks and smuggled requests: what the gateway checks is what the program gets."""

import asyncio
from contextlib import suppress

import pytest

from tests.integration.gateway.programs import Seen, answering, in_box, page
from tests.support.servers.connections import connected
from tests.support.servers.gateway import BOX, OTHER_BOX, OWNER, GatewayServer


async def said_to(server: GatewayServer, sent: bytes) -> bytes:
    """All that a raw request is answered until the server has nothing more to say."""
    async with connected(server.port) as (reader, writer):
        writer.write(sent)
        async with asyncio.timeout(30):
            answer = await reader.read(1 << 16)
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(1):
                    if not (piece := await reader.read(1 << 16)):
                        break
                answer += piece
    return answer


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize(
    "host",
    [
        f"3000-{BOX}.localhost.evil.example",
        f"3000-{BOX}.localhost.",
        f"x.3000-{BOX}.localhost",
        f"3000-{BOX}localhost",
        f"03000-{BOX}.localhost",
        f"70000-{BOX}.localhost",
        f"3000-{BOX}x.localhost",
        f"3000-{BOX}@.localhost",
        f"-{BOX}.localhost",
        ".localhost",
    ],
)
async def test_only_a_whole_host_names_a_sandbox(server: GatewayServer, host: str) -> None:
    seen = Seen()
    async with in_box(server, answering(page("in"), seen)):
        answer = await said_to(server, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert status_of(answer) in (400, 404)
    assert not seen.arrived.is_set()


async def test_a_host_in_capitals_is_the_same(server: GatewayServer) -> None:
    async with in_box(server, answering(page("in"))):
        assert (await server.request(host=server.host().upper())).body == b"in"


async def test_a_request_with_two_host_headers_is_refused(server: GatewayServer) -> None:
    """One would be checked and the other believed."""
    seen = Seen()
    async with in_box(server, answering(page("in"), seen)):
        lines = f"Host: {server.host()}\r\nHost: {server.host(OTHER_BOX)}\r\n"
        answer = await said_to(server, f"GET / HTTP/1.1\r\n{lines}\r\n".encode())
    assert status_of(answer) in (400, 404)
    assert not seen.arrived.is_set()


async def test_a_host_in_the_request_line_is_not_believed(server: GatewayServer) -> None:
    seen = Seen()
    async with in_box(server, answering(page("in"), seen)):
        line = f"GET http://{server.host(OTHER_BOX)}/x HTTP/1.1"
        await said_to(server, f"{line}\r\nHost: {server.host()}\r\n\r\n".encode())
    assert (seen.header("host"), seen.target) == (server.host(), "/x")


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        b"Transfer-Encoding: chunked\r\nContent-Length: 100\r\n\r\n0\r\n\r\n" + SMUGGLED,
        b"Content-Length: 0\r\nContent-Length: 36\r\n\r\n" + SMUGGLED,
        b"Transfer-Encoding: x, chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        b"X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
        b"X : a\r\nContent-Length: 0\r\n\r\n" + SMUGGLED,
        b"Transfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n-1\r\n\r\n" + SMUGGLED,
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n" + SMUGGLED,
    ],
)
async def test_no_request_is_smuggled_into_a_sandbox(server: GatewayServer, headers: bytes) -> None:
    """A program sees at most one request on a connection, with one length, and none of what came
    after it; that is a request of its own, to a host that is none."""
    connections: list[bytes] = []

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        connections.append(head)
        writer.write(page("ok"))
        await writer.drain()
        connections[-1] += await reader.read()

    async with in_box(server, record):
        start = f"POST / HTTP/1.1\r\nHost: {server.host()}\r\n".encode()
        await said_to(server, start + headers)
    assert len(connections) <= 1
    for sent in connections:
        head = sent.partition(b"\r\n\r\n")[0].lower()
        assert b"smuggled" not in sent
        assert (b"content-length" in head) + (b"transfer-encoding" in head) <= 1


async def test_no_tunnel_is_opened(server: GatewayServer) -> None:
    async with in_box(server, answering(page("in"))):
        sent = f"CONNECT {server.host()} HTTP/1.1\r\nHost: {server.host()}\r\n\r\n".encode()
        assert status_of(await said_to(server, sent)) in (400, 404)


async def test_the_api_is_not_below_the_domain(server: GatewayServer) -> None:
    """And no sandbox's host reaches the API."""
    server.boxes.add(BOX, OWNER, port=3000, at=1, is_running=False)
    answer = await server.request(path="/healthz")
    assert b"ADDRESS_UNKNOWN" in answer.body


SPOOFED = (
    *("X-Forwarded-For", "X_Forwarded_For", "X-FORWARDED_for", "X-Forwarded-Host"),
    *("X-Forwarded-Proto", "X_Forwarded_Proto", "X-Forwarded-Port", "X-Forwarded-Prefix"),
    *("X-Real-Ip", "X_Real_Ip", "X_Request_Id", "Forwarded"),
    *("Content_Length", "Transfer_Encoding", "Proxy_Authorization"),
)


@pytest.mark.parametrize("connection", ["close", "X-Forwarded-For, X-Forwarded-Host, Host"])
async def test_nobody_speaks_as_the_gateway(server: GatewayServer, connection: str) -> None:
    """Frameworks read `_` as `-`, and drop what `Connection` names."""
    seen = Seen()
    async with in_box(server, answering(page("in"), seen)):
        sent = [("Connection", connection), *((name, "6.6.6.6") for name in SPOOFED)]
        assert (await server.request(headers=sent)).body == b"in"
    assert "6.6.6.6" not in [value for _, value in seen.headers]
    assert seen.header("x-forwarded-for") == "127.0.0.1"
    assert seen.header("host") == seen.header("x-forwarded-host") == server.host()


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        ("a=1; Domain=localhost; Path=/; Secure", "a=1; Path=/; Secure"),
        ("a=1;domain = .localhost", "a=1"),
        ("a=1; DOMAIN=evil.example; Domain=localhost; HttpOnly", "a=1; HttpOnly"),
        ("domain=1; Path=/", "domain=1; Path=/"),
    ],
)
async def test_a_programs_cookie_is_for_its_own_host(
    server: GatewayServer, said: str, passed: str
) -> None:
    """Else one sandbox would set what its neighbours are sent."""
    async with in_box(server, answering(page("in", f"Set-Cookie: {said}"))):
        assert (await server.request()).header("set-cookie") == passed


@pytest.mark.parametrize(
    ("target", "arrives"),
    [
        ("/\xc3\xa9?\xff".encode("latin-1"), "/%C3%A9?%FF"),
        (b"//evil.example/x", "//evil.example/x"),
        (b"/..%2f..%2fetc", "/..%2f..%2fetc"),
        (b"/@evil.example:80/", "/@evil.example:80/"),
        (b"/%00%0d%0aHost:%20x", "/%00%0d%0aHost:%20x"),
        (b'/"<>{}|^`', '/"<>{}|^`'),
    ],
)
async def test_a_path_arrives_as_it_was_meant_or_not_at_all(
    server: GatewayServer, target: bytes, arrives: str
) -> None:
    seen = Seen()
    async with in_box(server, answering(page("in"), seen)):
        rest = f"Host: {server.host()}\r\nConnection: close\r\n\r\n".encode()
        answer = await said_to(server, b"GET " + target + b" HTTP/1.1\r\n" + rest)
    assert status_of(answer) in (200, 400)
    assert seen.target == (arrives if status_of(answer) == 200 else "")


@pytest.mark.parametrize(
    "line",
    [
        "GET /",
        "GET / HTTP/0.9",
        "GET / HTTP/2.0",
        "GET /a b HTTP/1.1",
        "G\tET / HTTP/1.1",
        "GET x HTTP/1.1",
        "PRI * HTTP/2.0",
    ],
)
async def test_what_is_no_request_is_refused(server: GatewayServer, line: str) -> None:
    seen = Seen()
    async with in_box(server, answering(page("in"), seen)):
        rest = f"Host: {server.host()}\r\nConnection: close\r\n\r\n"
        answer = await said_to(server, f"{line}\r\n{rest}".encode())
    assert not answer or status_of(answer) in (400, 404, 505)
    assert not seen.arrived.is_set()
