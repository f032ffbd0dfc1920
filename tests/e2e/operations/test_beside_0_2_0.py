"""Servers of 0.2.0 and of this release side by side, as a rolling deployment has them."""

import asyncio
import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.e2e.telemetry.api import Api
from tests.support.servers.processes import (
    ServerProcess,
    csp_simulator,
    sandyard_serve,
    verify,
    wait_for_pool,
)
from tests.support.servers.releases import release_0_2_0, sandyard
from tests.support.storage.engines import AWS_ENVIRONMENT, SHARED_ENGINES, create_database

PARTS = {"PARTS": "broker,telemetry", "SYNC_INTERVAL_SEC": "1", "CLEANUP_INTERVAL_SEC": "1"}


async def shared_engine(engine: str, postgres_url: str, dynamo_url: str) -> dict[str, str]:
    """Settings that lead both releases to a place of their own there."""
    if engine == "postgresql":
        return {"DATABASE_URL": await create_database(postgres_url)}
    own = f"Upgrade-{uuid4().hex[:12]}"
    names = {"DDB_TABLE_NAME": own, "TELEMETRY_TABLE_PREFIX": f"{own}-"}
    stores = {"POOL_STORE": "dynamodb", "TELEMETRY_STORE": "dynamodb"}
    return {"DDB_ENDPOINT_URL": dynamo_url, **names, **stores, **AWS_ENVIRONMENT}


class Callers:
    """Tracks that lease at one server, ask again at another and give up at either, and a device
    that sends each reading twice."""

    def __init__(self, servers: Sequence[ServerProcess]) -> None:
        self.servers = list(servers)
        self.leased: dict[str, str] = {}
        """The track of each sandbox that was leased."""
        self.board = Api(self.servers[0])
        self._chance = random.Random(1)
        self._is_over = False
        self._calls = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with httpx.AsyncClient(timeout=60) as http:
            tracks = [self._tracks(http, caller) for caller in range(4)]
            await asyncio.gather(*tracks, self._readings(http))

    async def _tracks(self, http: httpx.AsyncClient, caller: int) -> None:
        for number in itertools.count():
            if self._is_over:
                return
            await self._track(http, f"track-{caller}-{number}")
            await asyncio.sleep(0.02)

    async def _track(self, http: httpx.AsyncClient, track: str) -> None:
        made = await self._claim(http, track, 201)
        assert await self._claim(http, track, 200) == made
        sandbox_id = made["sandbox_id"]
        assert self.leased.setdefault(sandbox_id, track) == track, "it was leased before"
        if self._chance.random() < 0.5:
            path = f"/v1/sandboxes/{sandbox_id}/mark-for-deletion"
            await self._call(http, path, {"X-Track-ID": track}, 200)

    async def _claim(self, http: httpx.AsyncClient, track: str, status: int) -> Any:
        return await self._call(http, "/v1/allocate", {"X-Track-ID": track}, status)

    async def _readings(self, http: httpx.AsyncClient) -> None:
        board = self.board
        while not self._is_over:
            reading = board.reading()
            first, again = [
                await self._call(http, "/telemetry/v1/data", board.device, 200, reading)
                for _ in range(2)
            ]
            assert first["acknowledged_batch_ids"] == [reading["batch_id"]]
            assert again["duplicate_batch_ids"] == [reading["batch_id"]]
            register = board.registration(firmware_version=f"1.0.{len(self.leased)}")
            await self._call(http, "/telemetry/v1/register", board.device, 200, register)
            await asyncio.sleep(0.05)

    async def _call(
        self,
        http: httpx.AsyncClient,
        path: str,
        headers: dict[str, str],
        status: int,
        body: Any = None,
    ) -> Any:
        server = self._chance.choice(self.servers)
        answer = await http.post(server.url + path, headers=server.track | headers, json=body)
        assert answer.status_code == status, (server.url, path, answer.text)
        return answer.json()

    async def some_more(self) -> None:
        wanted = len(self.leased) + 40
        while len(self.leased) < wanted:
            await asyncio.sleep(0.02)
            if self._calls.done():
                await self._calls

    async def stop(self) -> None:
        self._is_over = True
        await self._calls
        self.board.client.close()


def expand(folder: Path, engine: str, environment: dict[str, str]) -> None:
    """What this release needs, added while 0.2.0 serves."""
    if engine == "dynamodb":
        assert "fit for use" in sandyard(folder, "tables", "check", environment=environment)
        return
    plan = sandyard(folder, "db", "upgrade", "--dry-run", environment=environment)
    assert "Stop the servers" not in plan
    sandyard(folder, "db", "upgrade", environment=environment)


async def replaced(callers: Callers, old: ServerProcess, new: ServerProcess) -> None:
    """Both serve for a while, each with its jobs; then the old one goes."""
    callers.servers.append(new)
    for _ in range(5):
        await asyncio.gather(callers.some_more(), asyncio.sleep(2))
    callers.servers.remove(old)
    await callers.some_more()
    assert await asyncio.to_thread(old.stop) == 0
    await callers.some_more()
    await callers.stop()


@pytest.mark.torture
@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", SHARED_ENGINES)
async def test_0_2_0_is_replaced_without_a_pause(
    tmp_path: Path, postgres_url: str, dynamo_url: str, engine: str
) -> None:
    shared = PARTS | await shared_engine(engine, postgres_url, dynamo_url)
    old_release = release_0_2_0()
    first = ("db", "upgrade") if engine == "postgresql" else ("tables", "create")
    with csp_simulator(tmp_path, "--count", "4000") as provider:
        shared |= {"CSP_BASE_URL": provider, "CSP_API_TOKEN": "any"}
        sandyard(tmp_path, *first, environment=shared | old_release)
        with sandyard_serve(tmp_path / "old", environment=shared | old_release) as old:
            await asyncio.to_thread(wait_for_pool, old)
            callers = Callers([old])
            await callers.some_more()
            await asyncio.to_thread(expand, tmp_path, engine, shared)
            await asyncio.to_thread(callers.board.new_key)
            await callers.some_more()
            assert httpx.get(old.url + "/readyz", timeout=60).status_code == 200
            with sandyard_serve(tmp_path / "new", environment=shared) as new:
                await replaced(callers, old, new)
                code, said = await asyncio.to_thread(verify, tmp_path / "new", shared)
    assert code == 0, said
