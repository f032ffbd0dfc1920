"""What was answered before `kill -9` holds after it."""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import aiohttp
import httpx

from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.kit.free_ports import free_port
from sandyard.kit.sql.database import SqliteDatabase
from tests.support.broker.pools import check_invariants
from tests.support.servers.processes import ServerProcess, csp_simulator, sandyard_serve

CALLERS = 60
POOL = 1500


def _client(server: ServerProcess, *, connections: int = 90) -> aiohttp.ClientSession:
    """Not httpx's, to which many connections cost more than the server."""
    return aiohttp.ClientSession(
        server.url,
        headers=server.track,
        timeout=aiohttp.ClientTimeout(60),
        connector=aiohttp.TCPConnector(limit=connections),
    )


async def _allocate(client: aiohttp.ClientSession, track: str) -> tuple[int, dict[str, Any]]:
    async with client.post("/v1/allocate", headers={"X-Track-ID": track}) as response:
        body: dict[str, Any] = await response.json()
        if response.status == 409:
            assert response.headers["Retry-After"] == str(body["error"]["retry_after"])
        return response.status, body


async def _load(server: ServerProcess, answers: dict[str, dict[str, Any]], kill_after: int) -> None:
    """Claims and marks of many tracks; the server is killed in the middle of it."""
    numbers = iter(range(POOL))
    killed = asyncio.Event()

    async def caller(client: aiohttp.ClientSession) -> None:
        for number in numbers:
            track = f"track-{number}"
            attempts[track] += 1
            try:
                status, answer = await _allocate(client, track)
            except aiohttp.ClientError:
                return
            assert status == 201, answer
            answers[track] = answer
            if len(answers) >= kill_after and not killed.is_set():
                killed.set()
                server.kill()

    attempts: dict[str, int] = defaultdict(int)
    async with _client(server) as client:
        await asyncio.gather(*(caller(client) for _ in range(CALLERS)))
    assert killed.is_set()
    for track in attempts:
        answers.setdefault(track, {})


async def test_every_answer_survives_a_kill_in_the_middle_of_a_load(tmp_path: Path) -> None:
    port = free_port()
    answers: dict[str, dict[str, Any]] = {}
    with csp_simulator(tmp_path, "--count", str(POOL)) as provider:
        environment = {"CSP_BASE_URL": provider, "LOG_LEVEL": "WARNING"}
        with sandyard_serve(tmp_path / "data", environment=environment, port=port) as server:
            _sync(server)
            await _load(server, answers, kill_after=400)
        answered = {track: body for track, body in answers.items() if body}
        assert len(answered) >= 400
        with sandyard_serve(tmp_path / "data", environment=environment, port=port) as server:
            final = await _retry_all(server, list(answers))
            for track, body in answered.items():
                assert final[track] == (200, body)
            owned = [body["sandbox_id"] for _, body in final.values()]
            assert len(set(owned)) == len(owned) == len(answers)
            stats = httpx.get(
                f"{server.url}/v1/admin/stats", headers=server.admin, timeout=60
            ).json()
            assert stats["allocated"] == len(answers)
            assert stats["available"] == POOL - len(answers)
            assert stats["total"] == POOL
        store = SqlPoolStore(SqliteDatabase(tmp_path / "data" / "broker.db", schema="broker"))
        try:
            await check_invariants(store)
        finally:
            await store.close()


async def _retry_all(
    server: ServerProcess, tracks: list[str]
) -> dict[str, tuple[int, dict[str, Any]]]:
    async with _client(server) as client:
        found = await asyncio.gather(*(_allocate(client, track) for track in tracks))
        return dict(zip(tracks, found, strict=True))


def _sync(server: ServerProcess) -> None:
    response = httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=30)
    assert response.status_code == 200, response.text
    stats = httpx.get(f"{server.url}/v1/admin/stats", headers=server.admin, timeout=60).json()
    assert stats["available"] == POOL


async def test_a_burst_over_http_gives_each_caller_one(tmp_path: Path) -> None:
    """A thousand callers on six hundred sandboxes, all under way at once."""
    with csp_simulator(tmp_path, "--count", "600") as provider:
        environment = {"CSP_BASE_URL": provider, "LOG_LEVEL": "WARNING"}
        with sandyard_serve(tmp_path / "data", environment=environment) as server:
            httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=30)
            async with _client(server, connections=250) as client:
                tracks = [f"t{number}" for number in range(1000)]
                found = await asyncio.gather(*(_allocate(client, track) for track in tracks))
            leased = [body["sandbox_id"] for status, body in found if status == 201]
            refused = [body["error"] for status, body in found if status == 409]
            assert len(set(leased)) == len(leased) == 600
            assert len(refused) == 400
            assert {error["code"] for error in refused} == {"NO_SANDBOXES_AVAILABLE"}
