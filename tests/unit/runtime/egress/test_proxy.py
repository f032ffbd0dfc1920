"""The egress proxy: whom it connects to, what it counts, and that nobody wears it out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, replace

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.runtime.egress import proxy as egress_proxy
from sandyard.runtime.egress.proxy import EgressProxy
from sandyard.runtime.network_model import EgressPolicy, EgressRules
from tests.support.servers.connections import connected

OPEN = EgressPolicy("internet", (), ("127.0.0.0/8",))


@asynccontextmanager
async def served(proxy: EgressProxy) -> AsyncIterator[int]:
    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """Answers with what came, up to the first silence."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got = b""
        with suppress(TimeoutError):
            while chunk := await asyncio.wait_for(reader.read(65536), 0.2 if got else None):
                got += chunk
        is_http = got.startswith((b"GET", b"POST"))
        writer.write(
            (b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\n\r\n" if is_http else b"") + got
        )
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def ask(port: int, request: bytes) -> bytes:
    async with connected(port) as (reader, writer):
        writer.write(request)
        return await reader.read()


async def test_only_what_is_allowed_is_connected() -> None:
    async with echo() as far:
        request = b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\nend" % far
        lines: list[str | None] = []
        proxy = EgressProxy(EgressPolicy("internet"), SystemClock(), on_change=lines.append)
        async with served(proxy) as port:
            answer = await ask(port, request)
        assert answer.startswith(b"HTTP/1.1 403 blocked: 127.0.0.1 (its address is private)\r\n")
        assert proxy.private_host == "127.0.0.1"
        assert lines == ["blocked: 127.0.0.1 (its address is private)"]
        proxy = EgressProxy(OPEN, SystemClock())
        async with served(proxy) as port:
            assert (await ask(port, request)).endswith(b"established\r\n\r\nend")
        assert proxy.private_host is None
        counted = proxy.counter
        assert (counted.connections, counted.bytes_sent, counted.bytes_received) == (1, 3, 3)


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "2130706433", "0x7f.1", "127.1", "0", "[::1]", "[::ffff:127.0.0.1]"),
        *("169.254.169.254", "[64:ff9b::a9fe:a9fe]", "[fd00:ec2::254]", "10.0.0.1", "[::]"),
    ],
)
async def test_no_spelling_of_a_private_address_gets_through(host: str) -> None:
    proxy = EgressProxy(EgressPolicy("internet"), SystemClock())
    async with served(proxy) as port:
        tunnel = await ask(port, f"CONNECT {host}:8080 HTTP/1.1\r\n\r\n".encode())
        plain = await ask(port, f"GET http://{host}:8080/ HTTP/1.1\r\n\r\n".encode())
    for answer in (tunnel, plain):
        assert answer.startswith((b"HTTP/1.1 403", b"HTTP/1.1 502")), answer
    assert proxy.counter.connections == 0


async def test_a_plain_request_reaches_its_host_alone_and_once() -> None:
    """What stands behind it is no second request."""
    async with echo() as far, served(EgressProxy(OPEN, SystemClock())) as port:
        first = f"GET http://127.0.0.1:{far}/a HTTP/1.1\r\nHost: evil\r\n\r\n"
        second = f"GET http://127.0.0.1:{far}/b HTTP/1.1\r\n\r\n"
        answer = await ask(port, (first + second).encode())
    head, _, got = answer.partition(b"\r\n\r\n")
    assert head == b"HTTP/1.1 200 OK\r\nConnection: close"
    assert got.startswith(b"GET /a HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"/b" not in answer


async def test_a_body_of_a_plain_request_is_sent_with_it() -> None:
    async with echo() as far, served(EgressProxy(OPEN, SystemClock())) as port:
        head = f"POST http://127.0.0.1:{far}/ HTTP/1.1\r\nContent-Length: 7\r\n\r\n"
        answer = await ask(port, head.encode() + b"xxxxendMORE")
    assert b"MORE" not in answer
    assert b"POST / HTTP/1.1" in answer
    assert answer.endswith(b"xxxxend")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"POST http://a.org/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"GET http://a.org/ HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b"431"),
        (b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n", b"403"),
    ],
)
async def test_what_is_not_taken_is_answered(request_: bytes, status: bytes) -> None:
    async with served(EgressProxy(OPEN, SystemClock())) as port:
        assert (await ask(port, request_)).startswith(b"HTTP/1.1 " + status)


async def test_who_sends_a_head_for_ever_is_answered_in_time() -> None:
    proxy = EgressProxy(OPEN, SystemClock(), head_sec=0.1)
    async with served(proxy) as port, connected(port) as (reader, writer):
        writer.write(b"GET http://a.org/ HTTP/1.1\r\nX: ")
        async with asyncio.timeout(10):
            assert (await reader.read()).startswith(b"HTTP/1.1 408")


async def test_a_crowd_is_turned_away_and_the_next_is_served() -> None:
    async with echo() as far, served(EgressProxy(OPEN, SystemClock())) as port:
        request = b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\nend" % far
        async with asyncio.timeout(10):
            async with AsyncExitStack() as crowd:
                for _ in range(egress_proxy.MOST_CONNECTIONS):
                    await crowd.enter_async_context(connected(port))
                while not (await ask(port, b"")).startswith(b"HTTP/1.1 503"):
                    await asyncio.sleep(0.01)
            while b"200" not in await ask(port, request):
                await asyncio.sleep(0.01)


async def test_a_stricter_policy_cuts_off_what_it_does_not_allow() -> None:
    proxy = EgressProxy(OPEN, SystemClock())
    async with echo() as far, served(proxy) as port:
        async with connected(port) as (reader, writer):
            writer.write(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % far)
            assert b"200" in await reader.readuntil(b"\r\n\r\n")
            proxy.change(EgressPolicy("none"))
            async with asyncio.timeout(10):
                assert await reader.read() == b""
        answer = await ask(port, b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % far)
        assert b"403 blocked: 127.0.0.1 (this sandbox has no network)" in answer


async def test_rules_let_some_addresses_through_and_cut_the_rest_off() -> None:
    closed = replace(OPEN, rules=EgressRules(("127.0.0.1",), ("0.0.0.0/0",)))
    async with echo() as far:
        requests = [
            b"CONNECT %s:%d HTTP/1.1\r\n\r\nend" % (host, far)
            for host in (b"127.0.0.1", b"127.0.0.2")
        ]
        proxy = EgressProxy(closed, SystemClock())
        async with served(proxy) as port:
            assert (await ask(port, requests[0])).endswith(b"established\r\n\r\nend")
            denied = b"403 blocked: 127.0.0.2 (denied by a rule of this sandbox)"
            assert denied in await ask(port, requests[1])
            async with connected(port) as (reader, writer):
                writer.write(requests[0][:-3])
                assert b"200" in await reader.readuntil(b"\r\n\r\n")
                proxy.change(replace(closed, rules=EgressRules.of(asdict(closed.rules))))
                writer.write(b"end")
                assert await reader.read() == b"end", "what stays as it was cuts nothing off"
            proxy.change(replace(OPEN, rules=EgressRules(deny=["127.0.0.1/32"])))
            assert b"403" in await ask(port, requests[0])


class ChangingName:
    """A name whose address is another with each lookup."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def addresses(self, host: str, port: int) -> list[str]:  # noqa: ARG002
        self.asked += 1
        return self._answers.pop(0)


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["1.1.1.1", "127.0.0.1"], ["2606:4700::1111", "::1"]]
)
async def test_a_name_with_a_private_address_is_refused(addresses: list[str]) -> None:
    proxy = EgressProxy(EgressPolicy("internet"), SystemClock(), resolver=ChangingName(addresses))
    async with served(proxy) as port:
        answer = await ask(port, b"CONNECT rebind.example.org:8080 HTTP/1.1\r\n\r\n")
    assert b"403 blocked: rebind.example.org (its address is private)" in answer


async def test_a_name_is_looked_up_once_and_its_address_is_what_was_checked() -> None:
    """A second lookup would lead elsewhere."""
    name = ChangingName(["127.0.0.1"], ["192.0.2.1"])
    async with echo() as far, served(EgressProxy(OPEN, SystemClock(), resolver=name)) as port:
        request = b"CONNECT rebind.example.org:%d HTTP/1.1\r\n\r\nend" % far
        assert (await ask(port, request)).endswith(b"end")
    assert name.asked == 1
