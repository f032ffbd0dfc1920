"""Probes over real sockets, and the provider's own word."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from sandyard.broker.pool.model import Listed
from sandyard.broker.probes.probers import address_of, prober_of
from tests.fakes.provider import FakeProvider
from tests.support.broker.pools import free_sandboxes

[SANDBOX] = free_sandboxes(1)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server that says 200 at /lab-00000 and 503 elsewhere."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readline()
        status = b"200 OK" if b"/lab-00000" in request else b"503 Service Unavailable"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def check(target: str, provider: FakeProvider | None = None) -> str | None:
    prober = prober_of(target, provider or FakeProvider(), timeout_sec=5)
    try:
        return await prober.check(SANDBOX)
    finally:
        await prober.close()


async def test_http_passes_with_a_good_status(port: int) -> None:
    assert await check(f"http://127.0.0.1:{port}/{{name}}") is None
    assert await check(f"http://127.0.0.1:{port}/other") == "status 503"


async def test_tcp_passes_where_something_listens(port: int) -> None:
    assert await check(f"tcp://127.0.0.1:{port}") is None


async def test_nobody_there_is_a_failure(port: int) -> None:
    del port
    closed = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    gone = closed.sockets[0].getsockname()[1]
    closed.close()
    await closed.wait_closed()
    assert await check(f"http://127.0.0.1:{gone}/") == "ConnectError"
    assert "refused" in (await check(f"tcp://127.0.0.1:{gone}") or "")


async def test_one_that_never_answers_fails_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):  # until the caller gives up
            pass
        writer.close()
        gone.set()

    gone = asyncio.Event()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    prober = prober_of(f"http://127.0.0.1:{port}/", FakeProvider(), timeout_sec=0.2)
    failure = await prober.check(SANDBOX)
    await prober.close()
    await asyncio.wait_for(gone.wait(), 60)
    server.close()
    await server.wait_closed()
    assert failure in ("no answer within 0.2 s", "ReadTimeout")


async def test_the_provider_says_whether_it_is_there() -> None:
    provider = FakeProvider()
    assert await check("provider", provider) == "the provider does not have it"
    provider.sandboxes[SANDBOX.external_id] = Listed(SANDBOX.external_id, SANDBOX.name)
    assert await check("provider", provider) is None


@pytest.mark.parametrize("name", ["a/b", "x@evil", "", "a b", "host:80"])
async def test_a_name_never_changes_where_the_probe_goes(name: str) -> None:
    renamed = SANDBOX.listed_as(name, 0)
    prober = prober_of("http://{name}.labs.example/", FakeProvider(), timeout_sec=1)
    assert await prober.check(renamed) == "its name can't be part of an address"
    await prober.close()


def test_its_values_stand_in_the_address() -> None:
    filled = address_of("{name}-{external_id}-{sandbox_id}", SANDBOX)
    assert filled == f"{SANDBOX.name}-{SANDBOX.external_id}-{SANDBOX.sandbox_id}"
