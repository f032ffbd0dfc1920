"""Calls that wait for their turn, over HTTP, through growth of the pool and `kill -9`."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.broker.verification import verify
from sandyard.entrypoints.server import free_port
from sandyard.kit.events import EventQuery
from sandyard.kit.sql import SqliteDatabase
from tests.e2e.broker.requests import assert_error, new_track, send, token
from tests.pools import check_invariants, everything
from tests.servers import ServerProcess, csp_simulator, sandyard_serve

FREE, GROWTH, CALLERS = 600, 200, 1000


class Callers:
    """Each asks until it has a sandbox, as a good client does: with the same track, and waiting."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._url = url
        self._headers = headers | {"Prefer": "wait=20"}
        self.leases: dict[str, dict[str, Any]] = {}

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(self._url, connector=connector) as http:
            await asyncio.gather(*(self._insist(http, f"t{n}") for n in range(CALLERS)))

    async def _insist(self, http: aiohttp.ClientSession, track: str) -> None:
        headers = self._headers | {"X-Track-ID": track}
        while track not in self.leases:
            try:
                async with http.post("/v1/allocate", headers=headers) as answer:
                    if answer.status in (200, 201):
                        self.leases[track] = await answer.json()
                    else:
                        assert answer.status in (409, 503), await answer.text()
            except aiohttp.ClientError:
                await asyncio.sleep(0.2)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not is_so():
                await asyncio.sleep(0.05)


async def until_waiting(server: ServerProcess, count: int) -> None:
    async with asyncio.timeout(120), httpx.AsyncClient(base_url=server.url) as http:
        while f"queue_waiting {count}.0" not in (await http.get("/metrics")).text:
            await asyncio.sleep(0.2)


async def grow(server: ServerProcess, provider: str) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        await http.post(f"{provider}/_sim/sandboxes", json={"count": GROWTH})
        synced = await http.post(f"{server.url}/v1/admin/sync", headers=server.admin)
    assert synced.json()["added"] == GROWTH


@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.torture), True])
async def test_a_class_larger_than_the_pool_is_served_in_order_as_it_grows(
    tmp_path: Path, killed: bool
) -> None:
    port = free_port()
    with csp_simulator(tmp_path, "--count", str(FREE)) as provider:
        environment = {"CSP_BASE_URL": provider, "LOG_LEVEL": "WARNING", "PARTS": "broker"}
        with sandyard_serve(tmp_path / "data", environment=environment, port=port) as server:
            callers = Callers(server.url, server.track)
            asking = asyncio.create_task(callers.run())
            await callers.until(lambda: len(callers.leases) == FREE)
            await until_waiting(server, CALLERS - FREE)
            await grow(server, provider)
            await callers.until(lambda: len(callers.leases) > FREE + GROWTH // 2)
            if not killed:
                await _finish(server, provider, callers, asking)
            else:
                server.kill()
        if killed:
            with sandyard_serve(tmp_path / "data", environment=environment, port=port) as server:
                await _finish(server, provider, callers, asking)
    await check_order(tmp_path / "data" / "broker.db", callers.leases)


async def _finish(
    server: ServerProcess, provider: str, callers: Callers, asking: asyncio.Task[None]
) -> None:
    await callers.until(lambda: len(callers.leases) == FREE + GROWTH)
    await until_waiting(server, CALLERS - FREE - GROWTH)
    await grow(server, provider)
    async with asyncio.timeout(120):
        await asking


async def check_order(database: Path, leases: dict[str, dict[str, Any]]) -> None:
    """Everybody has one of their own, and who came first was served first."""
    store = SqlPoolStore(SqliteDatabase(database, schema="broker"))
    try:
        assert len({each["sandbox_id"] for each in leases.values()}) == CALLERS
        queued: dict[str, str] = {}
        cursor = None
        while True:
            query = EventQuery(kind="ticket.created")
            page = await store.events.page(query, limit=100, cursor=cursor)
            queued |= {e.event.subject: e.event.data["track_id"] for e in page.items}
            cursor = page.next_cursor
            if cursor is None:
                break
        in_order = [leases[queued[ticket]]["name"] for ticket in sorted(queued)]
        first, second = in_order[:GROWTH], in_order[GROWTH:]
        assert len(in_order) == CALLERS - FREE
        assert max(first) < min(second), "a ticket was overtaken"
        assert {each.allocated_to_track for each in await everything(store)} == set(leases)
        await check_invariants(store)
        assert (await verify(store)).problems == []
    finally:
        await store.close()


@pytest.fixture
def one(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose pool has one sandbox."""
    with (
        csp_simulator(tmp_path, "--count", "1") as provider,
        sandyard_serve(tmp_path / "data", environment={"CSP_BASE_URL": provider}) as server,
    ):
        httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60)
        yield server


def queue(server: ServerProcess, track: str, method: str = "POST") -> httpx.Response:
    headers = server.track | {"X-Track-ID": track}
    return httpx.request(method, f"{server.url}/v1/queue", headers=headers)


def test_a_ticket_is_given_kept_and_left(one: ServerProcess) -> None:
    assert [queue(one, "a").status_code for _ in range(2)] == [201, 200]
    ticket = queue(one, "b")
    assert ticket.status_code == 202
    assert ticket.json() | {"ticket_id": ""} == {
        "ticket_id": "",
        "position": 1,
        "estimated_wait_sec": None,
        "ask_within_sec": 60.0,
    }
    assert queue(one, "b").json() == ticket.json()
    assert queue(one, "b", "DELETE").status_code == 204
    left = queue(one, "b", "DELETE")
    assert (left.status_code, left.json()["error"]["code"]) == (404, "TICKET_NOT_FOUND")


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("Prefer", "wait=soon", "INVALID_PREFER"),
        ("Prefer", "wait=-1", "INVALID_PREFER"),
        ("Prefer", "wait=1, wait=2", "INVALID_PREFER"),
        ("Prefer", "wait", "INVALID_PREFER"),
        ("Priority", "u=8", "INVALID_PRIORITY"),
        ("Priority", "u=high", "INVALID_PRIORITY"),
        ("Priority", "u=1, u=2", "INVALID_PRIORITY"),
        ("Priority", "", "INVALID_PRIORITY"),
        ("Priority", "i", "INVALID_PRIORITY"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(
    server: ServerProcess, name: str, value: str, code: str
) -> None:
    headers = [token(server), ("X-Track-ID", new_track()), (name, value)]
    assert_error(send(server, "POST", "/v1/allocate", headers), 400, code)


@pytest.mark.parametrize("value", ["respond-async", "respond-async, wait=1", "handling=lenient"])
def test_other_preferences_are_let_be(server: ServerProcess, value: str) -> None:
    headers = [
        token(server),
        ("X-Track-ID", new_track()),
        ("Prefer", value),
        ("Priority", "u=1, i"),
    ]
    assert send(server, "POST", "/v1/allocate", headers).status == 201


async def test_a_server_that_stops_answers_those_who_wait(one: ServerProcess) -> None:
    queue(one, "a")
    headers = one.track | {"X-Track-ID": "b", "Prefer": "wait=60"}
    async with httpx.AsyncClient(base_url=one.url, timeout=60) as http:
        waiting = asyncio.create_task(http.post("/v1/allocate", headers=headers))
        await until_waiting(one, 1)
        stopped = asyncio.create_task(asyncio.to_thread(one.stop))
        assert (await waiting).status_code == 409
        assert await stopped == 0
