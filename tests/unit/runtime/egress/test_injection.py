"""Secrets in requests: the host gets the value, programs never do."""

import asyncio
import base64
import gc
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.runtime.egress.tls_streams import TlsStream
from tests.support.servers.injected import (
    HOST,
    PLACEHOLDER,
    VALUE,
    InjectedHost,
    bound,
    injected_host,
    reasons,
    secrets_of,
)

_CLOSE = "Connection: close\r\n\r\n"


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[InjectedHost]:
    async with injected_host(tmp_path, query=("key",)) as made:
        yield made


def request(*lines: str, method: str = "GET", target: str = "/v1", body: str = "") -> bytes:
    first = f"{method} {target} HTTP/1.1\r\nHost: {HOST}\r\n"
    return (first + "".join(f"{line}\r\n" for line in lines) + _CLOSE + body).encode()


CHUNKS = f"5\r\n{VALUE[:5]}\r\n{len(VALUE) - 5:x}\r\n{VALUE[5:]}\r\n0\r\n\r\n"
BASIC = base64.b64encode(f"user:{PLACEHOLDER}".encode()).decode()


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (request(f"Authorization: Bearer {PLACEHOLDER}"), f"Authorization: Bearer {VALUE}"),
        (request(f"x-API-key: {PLACEHOLDER}"), f"x-API-key: {VALUE}"),
        (
            request(f"Authorization: Basic {BASIC}"),
            f"Authorization: Basic {base64.b64encode(f'user:{VALUE}'.encode()).decode()}",
        ),
        (
            request(target=f"/v1?a=b&key={PLACEHOLDER}&c"),
            "GET /v1?a=b&key=sk-live%2F7%2BQ%3Dnever~inside&c HTTP/1.1",
        ),
    ],
    ids=["header", "another header", "basic", "query"],
)
async def test_the_host_gets_the_value(host: InjectedHost, sent: bytes, received: str) -> None:
    answer = await host.asked(sent)
    assert answer.endswith(b"ok"), answer
    assert received.encode() in host.received.requests[0]
    [use] = host.proxy.counter.report("internet").secrets
    assert (use.id, use.requests) == ("env-1", 1)
    assert not reasons(host.proxy)


@pytest.mark.parametrize(
    "sent",
    [
        request(f"Origin: https://{PLACEHOLDER}"),
        request(f"X-Request-ID: {PLACEHOLDER}"),
        request(f"Cookie: a={PLACEHOLDER}"),
        request(target=f"/v1/{PLACEHOLDER}"),
        request(target=f"/v1?q={PLACEHOLDER}"),
        request(target="/v1?q=%73" + PLACEHOLDER[1:]),
        request(f"Proxy: Basic {BASIC}"),
        request(f"Authorization: Bearer {PLACEHOLDER}", method="TRACE"),
        request(f"Authorization: Bearer {PLACEHOLDER}", target=f"https://{HOST}/v1"),
        request(f"Authorization: Bearer {PLACEHOLDER}", target="https://other.test/"),
        request(f"Authorization: Bearer {PLACEHOLDER}", method="CONNECT", target="other.test:443"),
        request(f"Authorization: Bearer {PLACEHOLDER}").replace(HOST.encode(), b"other.test"),
        request(f"Authorization: Bearer {PLACEHOLDER}", "Host: other.test"),
        request(f"Authorization: Bearer {PLACEHOLDER}", "Content-Length: 3\r\nContent-Length: 4"),
        request(
            f"Authorization: Bearer {PLACEHOLDER}",
            *("Content-Length: 4", "Transfer-Encoding: chunked"),
            body="0\r\n\r\n",
        ),
        request(f"Authorization: Bearer {PLACEHOLDER}", "Transfer-Encoding: chunked, identity"),
        request(f"Authorization: Bearer {PLACEHOLDER}", "Transfer-Encoding : chunked"),
        request(f"Authorization: Bearer {PLACEHOLDER}\r\n\0x: y"),
        b"GET /v1 HTTP/1.1\r\nAuthorization: " + PLACEHOLDER.encode() + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_nothing_is_sent_where_a_secret_does_not_belong(
    host: InjectedHost, sent: bytes
) -> None:
    answer = await host.asked(sent)
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), answer
    assert not host.received.requests
    assert VALUE.encode() not in answer


async def test_a_connection_is_used_again_for_the_same_host_alone(host: InjectedHost) -> None:
    kept = request(f"Authorization: Bearer {PLACEHOLDER}").replace(_CLOSE.encode(), b"\r\n")
    other = kept.replace(HOST.encode(), b"other.test")
    answer = await host.asked(kept, kept, other)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert b"HTTP/1.1 421" in answer
    assert len(host.received.requests) == 2


async def test_no_request_goes_to_a_connection_that_the_host_has_closed(host: InjectedHost) -> None:
    """The program's connection ends too, without an answer, so that clients send it again."""
    kept = request(f"Authorization: Bearer {PLACEHOLDER}").replace(_CLOSE.encode(), b"\r\n")
    async with host.connected() as (reader, writer), asyncio.timeout(10):
        writer.write(kept)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        [far] = host.received.writers
        far.transport.abort()
        await far.wait_closed()
        writer.write(kept)
        assert await reader.read() == b""
    [use] = host.proxy.counter.report("internet").secrets
    assert use.requests == 1


async def test_a_request_hidden_in_a_body_stays_a_body(host: InjectedHost) -> None:
    """What the host reads as requests is what was checked."""
    hidden = f"GET /x HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: {PLACEHOLDER}\r\n\r\n"
    for lines, body in (
        ((f"Content-Length: {len(hidden)}",), hidden),
        (("Transfer-Encoding: chunked",), f"{len(hidden):x}\r\n{hidden}\r\n0\r\n\r\n"),
        (("Transfer-Encoding: chunked",), f"{len(hidden):x};a=b\r\n{hidden}\r\n0\r\nX: y\r\n\r\n"),
    ):
        host.received.requests.clear()
        assert (await host.asked(request(*lines, method="POST", body=body))).endswith(b"ok")
        [found] = host.received.requests
        assert PLACEHOLDER.encode() in found
        assert VALUE.encode() not in found
        assert b"a=b" not in found
        assert b"X: y" not in found


@pytest.mark.parametrize(
    "answer",
    [
        f"HTTP/1.1 200 OK\r\nX-Seen: Bearer {VALUE}\r\nContent-Length: 0\r\n\r\n",
        f"HTTP/1.1 302 Found\r\nLocation: https://other.test/?{VALUE}\r\nContent-Length: 0\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nContent-Length: {len(VALUE) + 6}\r\n\r\nseen: {VALUE}",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
        f"HTTP/1.1 200 {VALUE}\r\nContent-Length: 0\r\n\r\n",
        f"HTTP/1.1 103 Early Hints\r\nLink: {VALUE}\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=["header", "redirect", "body", "chunks", "reason", "interim"],
)
async def test_an_answer_that_repeats_the_value_is_cut(host: InjectedHost, answer: str) -> None:
    host.received.answer = answer.encode()
    found = await host.asked(request(f"Authorization: Bearer {PLACEHOLDER}", "Accept-Encoding: br"))
    assert VALUE.encode() not in found
    assert VALUE[:5].encode() not in found
    assert reasons(host.proxy) == ["its answer repeated the secret API_KEY"]
    assert b"Accept-Encoding: identity" in host.received.requests[0]


async def test_methods_and_paths_bound_a_secret(tmp_path: Path) -> None:
    async with injected_host(tmp_path, methods=("GET",), paths=("/v1", "/public/")) as host:
        key = f"Authorization: Bearer {PLACEHOLDER}"
        for target in ("/v1", "/v1/models?x=/..", "/public/a"):
            assert (await host.asked(request(key, target=target))).endswith(b"ok")
        for target in (
            *("/v2", "/v10", "/public", "/", "/v1/../admin", "/v1/%2e%2e/admin", "/v1//x"),
            *("/v1/..%2fadmin", "/v1/%5c..%5cadmin", "/v1/%252e%252e/admin", "//v1", "/v1/.."),
        ):
            assert (await host.asked(request(key, target=target))).startswith(b"HTTP/1.1 403")
        assert (await host.asked(request(key, method="POST"))).startswith(b"HTTP/1.1 403")
        assert len(host.received.requests) == 3
        # Without the secret, the host is reached as ever.
        assert (await host.asked(request(method="POST", target="/v2"))).endswith(b"ok")


async def test_a_header_may_be_set_whatever_the_program_sends(tmp_path: Path) -> None:
    async with injected_host(tmp_path, sets_header="X-Key") as host:
        assert (await host.asked(request("x-key: mine", "X-Key: again"))).endswith(b"ok")
        assert host.received.requests[0].lower().count(b"x-key:") == 1
        assert f"X-Key: {VALUE}".encode() in host.received.requests[0]


async def test_budgets_end_the_use(tmp_path: Path) -> None:
    async with injected_host(tmp_path, most_requests=2) as host:
        key = request(f"Authorization: Bearer {PLACEHOLDER}")
        assert [(await host.asked(key))[9:12] for _ in range(3)] == [b"200", b"200", b"403"]
        assert reasons(host.proxy) == ["the budget of the secret API_KEY is used up"]
        secrets = secrets_of(tmp_path, bound(host.host_port, most_requests=9, most_bytes=1000))
        host.proxy.set_secrets(secrets)
        length = 100_000
        host.received.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length
        host.received.answer += b"x" * length
        trusting = ssl.create_default_context(cadata=secrets.authority)
        again = replace(host, trusting=trusting)
        assert len(await again.asked(key)) < length
        assert (await again.asked(key)).startswith(b"HTTP/1.1 403")


async def test_only_tls_to_its_own_name_reaches_a_bound_host(host: InjectedHost) -> None:
    with pytest.raises(ssl.SSLError, match="access denied"):
        async with host.connected("other.test"):
            pass
    plain = request(f"Authorization: Bearer {PLACEHOLDER}")
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    writer.write(plain)
    assert (await reader.read()).startswith(b"HTTP/1.1 403")
    writer.close()
    assert not host.received.requests


async def test_the_host_must_have_a_certificate_that_is_trusted(host: InjectedHost) -> None:
    secrets = replace(secrets_of(host.folder, bound(host.host_port)), trusted="")
    host.proxy.set_secrets(secrets)
    trusting = ssl.create_default_context(cadata=secrets.authority)
    answer = await replace(host, trusting=trusting).asked(
        request(f"Authorization: Bearer {PLACEHOLDER}")
    )
    assert answer.startswith(b"HTTP/1.1 502")
    assert b"could not be reached by TLS" in answer
    assert not host.received.requests


async def test_distrust_is_reported(host: InjectedHost) -> None:
    def connect() -> None:
        with socket.create_connection(("127.0.0.1", host.port)) as plain:
            ssl.create_default_context().wrap_socket(plain, server_hostname=HOST)

    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.to_thread(connect)
    async with asyncio.timeout(10):
        while not reasons(host.proxy):
            await asyncio.sleep(0.01)
    assert reasons(host.proxy) == ["the program does not trust this sandbox's certificates"]


async def test_large_bodies_stream_and_expect_is_passed_on(host: InjectedHost) -> None:
    host.received.answer = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    )
    body = "x" * 3_000_000
    lines = (f"X-Api-Key: {PLACEHOLDER}", "Expect: 100-continue", f"Content-Length: {len(body)}")
    answer = await host.asked(request(*lines, method="PUT", body=body))
    assert answer.startswith(b"HTTP/1.1 100")
    assert answer.endswith(b"ok")
    assert host.received.requests[0].endswith(body.encode())


async def test_web_sockets_go_on_as_they_are(host: InjectedHost) -> None:
    host.received.answer = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\x02hi"
    )
    async with host.connected() as (reader, writer), asyncio.timeout(10):
        lines = ("Upgrade: websocket", "Connection: Upgrade", f"Authorization: {PLACEHOLDER}")
        writer.write(request(*lines).replace(b"Connection: close\r\n", b""))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        assert await reader.readexactly(4) == b"\x81\x02hi"
        writer.write(f"GET / HTTP/1.1\r\nAuthorization: {PLACEHOLDER}\r\n\r\n".encode())
        while len(host.received.requests) < 2:
            await asyncio.sleep(0.01)
    assert PLACEHOLDER.encode() in host.received.requests[1]
    assert VALUE.encode() in host.received.requests[0]


async def test_what_a_program_does_not_read_waits_at_the_host(host: InjectedHost) -> None:
    size, count = 16 << 20, 10
    host.received.answer = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode()
    host.received.answer += bytes(size)
    async with AsyncExitStack() as stack:
        for _ in range(count):
            _, writer = await stack.enter_async_context(host.connected())
            writer.write(request(f"Authorization: Bearer {PLACEHOLDER}"))
        async with asyncio.timeout(30):
            while len(host.received.requests) < count or not stored_bytes():
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)  # to store more, if it did
        assert stored_bytes() < count * (1 << 20)


def stored_bytes() -> int:
    """What proxies of this process have read and not passed on."""
    stored = 0
    for each in gc.get_objects():
        if type(each) is TlsStream:  # isinstance would ask a weak proxy for its ended object
            stored += each._writer.transport.get_write_buffer_size()
            stored += len(each._reader._buffer)  # type: ignore[attr-defined]
            stored += each._incoming.pending + each._outgoing.pending
    return stored


async def test_heads_without_an_end_are_refused(host: InjectedHost) -> None:
    endless = b"X: " + b"a" * 100_000
    assert b" 431 " in await host.asked(b"GET / HTTP/1.1\r\n" + endless)
    assert host.received.requests == []
    host.received.answer = b"HTTP/1.1 200 OK\r\n" + endless
    said = await host.asked(request(f"Authorization: Bearer {PLACEHOLDER}"))
    assert said.split(b" ")[1] == b"502"


async def test_a_host_that_closes_between_requests_ends_the_connection(host: InjectedHost) -> None:
    async with host.connected() as (reader, writer), asyncio.timeout(30):
        for ending in ("", "Connection: close\r\n"):
            answer = f"HTTP/1.1 200 OK\r\n{ending}Content-Length: 2\r\n\r\nok"
            host.received.answer = answer.encode()
            writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert await reader.read() == b""
