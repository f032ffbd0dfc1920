"""Connections that programs make directly: each goes to its host alone, and shows that it does."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.runtime.egress.http_heads import ProxyRequest
from sandyard.runtime.egress.proxy import EgressProxy
from sandyard.runtime.network_model import EgressPolicy, EgressRules
from tests.support.servers.certificates import Certificate, make_certificate
from tests.support.servers.connections import connected
from tests.unit.runtime.egress.test_proxy import OPEN, ChangingName, echo, served

NAME = "allowed.test"


class Host:
    """All names are this machine's."""

    async def addresses(self, host: str, port: int) -> list[str]:  # noqa: ARG002
        return ["127.0.0.1"]


def listed(port: int) -> EgressPolicy:
    return EgressPolicy("packages", (f"{NAME}:{port}",), ("127.0.0.0/8",))


@asynccontextmanager
async def direct(proxy: EgressProxy, host: str, port: int) -> AsyncIterator[int]:
    """A port here that stands for that of the host."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await proxy(reader, writer, ProxyRequest(host, port))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def asked(proxy: EgressProxy, port: int, *pieces: bytes, host: str = NAME) -> bytes:
    """What comes back for these pieces; an empty one is a pause."""
    async with direct(proxy, host, port) as at, connected(at) as (reader, writer):
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            return await reader.read()


@pytest.fixture(params=["internet", "packages"])
async def far(request: pytest.FixtureRequest) -> AsyncIterator[tuple[EgressProxy, int]]:
    """A host that answers with what it gets, and a proxy whose policy allows it."""
    async with echo() as port:
        policy = OPEN if request.param == "internet" else listed(port)
        yield EgressProxy(policy, SystemClock(), resolver=Host()), port


async def test_any_protocol_reaches_its_host(far: tuple[EgressProxy, int]) -> None:
    proxy, port = far
    for said in (b"*1\r\n$4\r\nPING\r\n", b"\0\0\0\x08\x04\xd2\x16/", b"SSH-2.0-a\r\n"):
        assert await asked(proxy, port, said) == said
    assert proxy.counter.connections == 3
    assert proxy.counter.refused == 0


async def test_a_host_may_speak_first(far: tuple[EgressProxy, int]) -> None:
    proxy, _ = far

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        writer.write(await reader.readline())
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        if proxy.policy.network == "packages":
            proxy.change(listed(port))
        async with direct(proxy, NAME, port) as at, connected(at) as (reader, writer):
            assert await reader.readline() == b"220 hello\r\n"
            writer.write(b"QUIT\r\n")
            assert await reader.read() == b"QUIT\r\n"


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
        "GET / HTTP/1.1\r\nhOST:other.test:80\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: {NAME}\r\nHost: other.test\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: {NAME}\r\n Host: other.test\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : other.test\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: {NAME}@other.test\r\n\r\n",
    ],
)
@pytest.mark.parametrize("cut", [None, 1, 9, 20])
async def test_a_request_that_names_another_host_is_not_sent(
    far: tuple[EgressProxy, int], head: str, cut: int | None
) -> None:
    proxy, port = far
    pieces = [head.encode()] if cut is None else [head[:cut].encode(), head[cut:].encode()]
    answer = await asked(proxy, port, *pieces)
    assert answer.startswith((b"HTTP/1.1 403 blocked: allowed.test", b"HTTP/1.1 400")), answer
    assert b"other.test" not in answer
    assert proxy.counter.bytes_sent == 0


async def test_a_second_request_on_a_connection_is_checked_too() -> None:
    """Where names share addresses, only the first is sent, and it is the last."""
    async with echo() as port:
        proxy = EgressProxy(listed(port), SystemClock(), resolver=Host())
        second = b"GET /2 HTTP/1.1\r\nHost: other.test\r\n\r\n"
        first = b"POST /1 HTTP/1.1\r\nHost: %s\r\nContent-Length: 4\r\n\r\nbody" % NAME.encode()
        answer = await asked(proxy, port, first + second)
        assert b"POST /1" in answer
        assert answer.endswith(b"body")
        assert b"/2" not in answer
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        assert (await asked(proxy, port, preface)).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "rules",
    [
        EgressRules((NAME,), ("0.0.0.0/0",)),
        EgressRules((NAME,), ("127.0.0.0/8",)),
        EgressRules(("192.0.2.1", f"*.{NAME.split('.')[1]}"), ("127.0.0.1",)),
    ],
)
async def test_a_name_allowed_at_a_denied_address_opens_it_for_no_other(
    rules: EgressRules,
) -> None:
    async with echo() as port:
        policy = replace(OPEN, rules=rules)
        proxy = EgressProxy(policy, SystemClock(), resolver=Host())
        first = f"GET /1 HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode()
        second = b"GET /2 HTTP/1.1\r\nHost: other.example\r\n\r\n"
        answer = await asked(proxy, port, first + second)
        assert b"/1" in answer
        assert b"/2" not in answer
        tabs = b"GET\t/\thttp/1.1\r\nHost: other.example\r\n\r\n"
        assert (await asked(proxy, port, tabs)).startswith(b"HTTP/1.1 400")
        with pytest.raises(ConnectionResetError):
            await asked(proxy, port, b"\0", host="127.0.0.1")


async def test_a_request_in_pieces_arrives_unchanged_on_an_open_network() -> None:
    async with echo() as port:
        proxy = EgressProxy(OPEN, SystemClock(), resolver=Host())
        host = f"Host: {NAME}:{port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        pieces = (b"PO", b"ST / HT", b"TP/1.1\r\n", host, b"1\r\na\r\n0\r\n\r\n")
        assert (await asked(proxy, port, *pieces)).endswith(b"".join(pieces))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    folder = tmp_path_factory.mktemp("certificate")
    return make_certificate(folder, f"DNS:{NAME}", "DNS:other.test")


@asynccontextmanager
async def tls_host(certificate: Certificate) -> AsyncIterator[int]:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"secret")
        writer.close()

    context = certificate.serving()
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def tls_answer(
    proxy: EgressProxy, port: int, certificate: Certificate, name: str | None
) -> bytes:
    context = certificate.trusting()
    context.check_hostname = False
    async with direct(proxy, NAME, port) as at:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", at, ssl=context, server_hostname=name or ""
        )
        found = await reader.read()
        writer.transport.abort()
        return found


async def test_tls_is_for_the_name_that_was_looked_up(certificate: Certificate) -> None:
    async with tls_host(certificate) as port:
        for policy in (OPEN, listed(port)):
            proxy = EgressProxy(policy, SystemClock(), resolver=Host())
            assert await tls_answer(proxy, port, certificate, NAME) == b"secret"
            with pytest.raises(ssl.SSLError, match="ALERT_ACCESS_DENIED"):
                await tls_answer(proxy, port, certificate, "other.test")
            [refusal] = proxy.counter.report("internet").refusals
            assert (refusal.host, refusal.reason) == (NAME, "TLS or HTTP there named another host")
        with pytest.raises(ssl.SSLError, match="ALERT_ACCESS_DENIED"):
            await tls_answer(proxy, port, certificate, None)


async def test_a_tunnel_is_checked_like_a_direct_connection() -> None:
    async with echo() as port:
        proxy = EgressProxy(listed(port), SystemClock(), resolver=Host())
        async with served(proxy) as at, connected(at) as (reader, writer):
            writer.write(f"CONNECT {NAME}:{port} HTTP/1.1\r\n\r\n".encode())
            assert b"200" in await reader.readuntil(b"\r\n\r\n")
            writer.write(b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 403")


async def test_what_the_policy_refuses_is_reset_and_told() -> None:
    lines: list[str | None] = []
    proxy = EgressProxy(
        EgressPolicy("packages"), SystemClock(), on_change=lines.append, resolver=Host()
    )
    with pytest.raises(ConnectionResetError):
        await asked(proxy, 5432, b"\0\0\0\x08\x04\xd2\x16/")
    assert lines == ["blocked: allowed.test (not in the package allow-list)"]
    answer = await asked(proxy, 80, b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
    assert b"403 blocked: allowed.test (not in the package allow-list)" in answer


@pytest.mark.parametrize("host", ["10.0.0.1", "169.254.169.254", "127.0.0.1", "198.18.9.9"])
async def test_a_bare_address_is_judged_as_an_address(host: str) -> None:
    for policy in (EgressPolicy("internet"), EgressPolicy("packages")):
        proxy = EgressProxy(policy, SystemClock())
        with pytest.raises(ConnectionResetError):
            await asked(proxy, 8080, b"\0", host=host)
        assert proxy.counter.refused == 1


async def test_an_address_that_a_rule_allows_is_reached_by_any_name() -> None:
    rules = EgressRules(("127.0.0.1",), ("0.0.0.0/0",))
    async with echo() as port:
        proxy = EgressProxy(replace(OPEN, rules=rules), SystemClock())
        request = b"GET / HTTP/1.1\r\nHost: any.test\r\n\r\n"
        assert (await asked(proxy, port, request, host="127.0.0.1")).endswith(request)
        with pytest.raises(ConnectionResetError):
            await asked(proxy, port, b"\0", host="127.0.0.2")


async def test_a_name_that_changes_its_address_after_it_was_looked_up_gains_nothing() -> None:
    name = ChangingName(["1.1.1.1"], ["127.0.0.1"])
    proxy = EgressProxy(EgressPolicy("internet"), SystemClock(), resolver=name)
    assert await proxy.exists(NAME)
    with pytest.raises(ConnectionResetError):
        await asked(proxy, 8080, b"\0")
    assert proxy.private_host == NAME


async def test_a_stricter_policy_cuts_off_direct_connections() -> None:
    stricter = (
        EgressPolicy("none"),
        replace(OPEN, rules=EgressRules(deny=("192.0.2.0/24",))),
        EgressPolicy("packages", (NAME,), ("127.0.0.0/8",)),
    )
    async with echo() as port:
        for policy in stricter:
            proxy = EgressProxy(OPEN, SystemClock(), resolver=Host())
            async with direct(proxy, NAME, port) as at, connected(at) as (reader, writer):
                writer.write(b"\0")
                while not proxy.counter.bytes_sent:
                    await asyncio.sleep(0.01)
                proxy.change(policy)
                async with asyncio.timeout(10):
                    assert await reader.read() in (b"", b"\0")


async def test_a_refused_name_is_not_resolved() -> None:
    name = ChangingName()
    proxy = EgressProxy(EgressPolicy("packages"), SystemClock(), resolver=name)
    assert await proxy.exists("secret-of-the-program.evil.test")
    assert name.asked == 0
