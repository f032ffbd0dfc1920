"""Which addresses are public, and that the proxy connects to no other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network

import pytest

from sandyard.runtime.local.egress_proxy import EgressProxy, is_public


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "140.82.121.4", "2606:4700::1111", "64:ff9b::101:101"]
)
def test_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "192.0.2.1"),
        *("::", "::1", "fe80::1", "fd00:ec2::254", "ff02::1", "::ffff:10.0.0.1"),
        *("2002:7f00:1::", "64:ff9b::a9fe:a9fe", "2001:0:4136:e378:8000:63bf:f5ff:fffe"),
        *("64:ff9b:1::a9fe:a9fe", "64:ff9b:1:ffff::1", "fec0::1", "feff::1"),
        *("::7f00:1", "::10.0.0.1", "::1.1.1.1", "::ffff:0:a00:1"),
    ],
)
def test_everything_else_is_not(address: str) -> None:
    assert not is_public(address)


def test_a_private_network_can_be_allowed_by_name() -> None:
    allowed = [ip_network("10.1.0.0/16")]
    assert is_public("10.1.2.3", allowed=allowed)
    assert is_public("::ffff:10.1.2.3", allowed=allowed)
    assert not is_public("10.2.2.3", allowed=allowed)


@asynccontextmanager
async def opened(proxy: EgressProxy) -> AsyncIterator[int]:
    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET http://127.0.0.1/ HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n",
        b"CONNECT 127.0.0.1:99999 HTTP/1.1\r\n\r\n",
        b"CONNECT \xff\xff:443 HTTP/1.1\r\n\r\n",
        b"nonsense",
        b"x" * 100_000,
    ],
)
async def test_what_is_no_request_is_answered_with_a_refusal(request_line: bytes) -> None:
    async with opened(EgressProxy()) as port:
        assert (await ask(port, request_line)).startswith(b"HTTP/1.1 502")


async def test_only_what_is_allowed_is_connected() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as inner:
        request = b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % inner.sockets[0].getsockname()[1]
        proxy = EgressProxy()
        async with opened(proxy) as port:
            assert (await ask(port, request)).startswith(b"HTTP/1.1 502")
        assert proxy.refused == "127.0.0.1"
        proxy = EgressProxy(allowed_networks=["127.0.0.0/8"])
        async with opened(proxy) as port:
            assert (await ask(port, request)).endswith(b"established\r\n\r\nhello")
        assert proxy.refused is None
