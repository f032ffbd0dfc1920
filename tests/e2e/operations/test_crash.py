"""What was answered before `kill -9` holds after it."""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx

from sandyard.broker.stores.sql import SqlPoolStore
from sandyard.kit.free_ports import free_port
from sandyard.kit.sql.database import SqliteDatabase
from tests.support.broker.pools import check_invariants
from tests.support.servers.processes import ServerProcess, csp_simulator, sandyard_serve

CALLERS = 60
POOL = 1500


AT_ONCE = 90
"""Below what the client's pool holds: what waits in there costs it more than what it sends."""


async def _load(server: ServerProcess, answers: dict[str, dict[str, Any]], kill_after: int) -> None:
    """Claims and marks of many tracks; the server is killed in the middle of it."""
    numbers = iter(range(POOL))
    killed = asyncio.Event()

    async def caller(client: httpx.AsyncClient) -> None:
        for number in numbers:
            track = f"track-{number}"
            headers = server.track | {"X-Track-ID": track}
            attempts[track] += 1
            try:
                response = await client.post("/v1/allocate", headers=headers)
            except httpx.TransportError:
                return
            assert response.status_code == 201, response.text
            answers[track] = response.json()
            if len(answers) >= kill_after and not killed.is_set():
                killed.set()
                server.kill()

    attempts: dict[str, int] = defaultdict(int)
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
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
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        slots = asyncio.Semaphore(AT_ONCE)

        async def retry(track: str) -> tuple[int, dict[str, Any]]:
            async with slots:
                response = await client.post(
                    "/v1/allocate", headers=server.track | {"X-Track-ID": track}
                )
            return response.status_code, response.json()

        return dict(zip(tracks, await asyncio.gather(*map(retry, tracks)), strict=True))


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
            limits = httpx.Limits(max_connections=250, max_keepalive_connections=250)
            slots = asyncio.Semaphore(250)
            async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as client:

                async def allocate(number: int) -> httpx.Response:
                    headers = server.track | {"X-Track-ID": f"t{number}"}
                    async with slots:
                        return await client.post("/v1/allocate", headers=headers)

                responses = await asyncio.gather(*map(allocate, range(1000)))
            leased = [r.json()["sandbox_id"] for r in responses if r.status_code == 201]
            refused = [r for r in responses if r.status_code == 409]
            assert len(set(leased)) == len(leased) == 600
            assert len(refused) == 400
            for response in refused:
                error = response.json()["error"]
                assert error["code"] == "NO_SANDBOXES_AVAILABLE"
                assert response.headers["Retry-After"] == str(error["retry_after"])
            repeats = await _retry_all(server, ["t0"] * 1 + ["same"] * 0)
            assert set(repeats) == {"t0"}
