"""Crowds of connections that cost their makers nothing: the others are served all the same."""

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.servers.processes import ServerProcess, sandyard_serve

CROWD = 5_000
IDLE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
SLOW = b"POST /v1/allocate HTTP/1.1\r\nHost: x\r\nX-Track-ID: slo"
GREEDY = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 40
"""Answers of megabytes, none of which is ever read."""

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    """Room for the crowd's end of the connections; the server sees to its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, CROWD + 1000)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def crowd(server: ServerProcess, *sent: bytes, count: int) -> AsyncIterator[list[Client]]:
    """So many connections, each of which has sent one of these and goes silent."""
    place = urlsplit(server.url)
    clients: list[Client] = []

    async def join(number: int) -> None:
        with suppress(OSError):  # broken off before it was connected on this side
            reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1024)
            clients.append((reader, writer))
            writer.write(sent[number % len(sent)])

    try:
        for first in range(0, count, 500):
            await asyncio.gather(*(join(n) for n in range(first, min(first + 500, count))))
        yield clients
    finally:
        for _, writer in clients:
            writer.transport.abort()


async def claim(server: ServerProcess, tracks: range) -> set[int]:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        answers = await asyncio.gather(
            *(
                client.post("/v1/allocate", headers=server.track | {"X-Track-ID": f"t{n}"})
                for n in tracks
            )
        )
        health = await client.get("/healthz")
    return {answer.status_code for answer in [*answers, health]}


async def test_claims_go_on_in_a_crowd_of_idle_slow_and_greedy_clients(tmp_path: Path) -> None:
    environment = {"PARTS": "broker", "MAX_CONNECTIONS_PER_ADDRESS": "20000"}
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        async with crowd(server, *[IDLE] * 24, *[SLOW] * 24, GREEDY, GREEDY, count=CROWD):
            assert await claim(server, range(20)) == {200, 201}


async def test_those_beyond_the_limit_are_broken_off_the_longest_silent_first(
    tmp_path: Path,
) -> None:
    environment = {"PARTS": "broker", "MAX_CONNECTIONS_PER_ADDRESS": "50"}
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        async with crowd(server, SLOW, count=100) as clients:
            ends = {asyncio.create_task(reader.read()) for reader, _ in clients}
            ended: set[asyncio.Task[bytes]] = set()
            while len(ended) < len(clients) - 50:
                done, _ = await asyncio.wait(ends - ended, return_when=asyncio.FIRST_COMPLETED)
                ended |= done
            assert await claim(server, range(5)) == {200, 201}
            for task in ends - ended:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
    assert "too many from one address" in server.log.read_text()


async def test_who_never_reads_its_answer_is_broken_off(tmp_path: Path) -> None:
    environment = {"WRITE_TIMEOUT_SEC": "1"}
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        async with crowd(server, GREEDY, count=3):
            while "does not read the response" not in server.log.read_text():
                await asyncio.sleep(0.1)
        assert (await claim(server, range(1))) <= {200, 201}
