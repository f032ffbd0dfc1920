"""Calls that wait for a sandbox, over HTTP."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.broker.requests import assert_error, new_track, send, token
from tests.support.servers.processes import ServerProcess, csp_simulator, sandyard_serve


async def until_waiting(server: ServerProcess, count: int) -> None:
    async with asyncio.timeout(120), httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        while f"queue_waiting {count}.0" not in (await http.get("/metrics")).text:
            await asyncio.sleep(0.2)


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
    return httpx.request(method, f"{server.url}/v1/queue", headers=headers, timeout=60)


def test_a_ticket_is_given_kept_and_left(one: ServerProcess) -> None:
    assert [queue(one, "a").status_code for _ in range(2)] == [201, 200]
    ticket = queue(one, "b")
    assert ticket.status_code == 202
    assert ticket.json() | {"ticket_id": ""} == {
        "ticket_id": "",
        "position": 1,
        "estimated_wait_sec": None,
        "ask_within_sec": 60.0,
        "message": None,
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
