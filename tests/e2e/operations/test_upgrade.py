"""Upgrades with real processes of several releases: data of 0.2.0, and two side by side."""

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from sandyard.broker.stores.sql import MIGRATIONS
from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql.database import PostgresDatabase
from sandyard.platform.schema import migrations as platform_schema
from tests.e2e.operations.test_beside_0_2_0 import expand, shared_engine
from tests.e2e.telemetry.api import Api
from tests.support.servers.processes import (
    ServerProcess,
    csp_simulator,
    sandyard_serve,
    verify,
    wait_for_pool,
)
from tests.support.servers.releases import (
    after,
    release_0_2_0,
    release_that_contracts,
    release_that_expands,
    sandyard,
)
from tests.support.servers.users import Person, signed_up
from tests.support.storage.engines import create_database

FILES = {"files": [{"path": "index.html", "content": "<h1>Before</h1>"}]}


class Data:
    """What callers of a server have there, asked for before and after an upgrade."""

    def __init__(self, server: ServerProcess) -> None:
        self.ann = signed_up(server, "ann", mail=1)
        self.project_id = self.ann.call("GET", "/projects")["projects"][0]["project_id"]
        self.ann.call("PUT", f"/projects/{self.project_id}/files", FILES)
        board = Api(server)
        board.send(board.reading()).raise_for_status()
        board.client.close()
        self.hardware_id = board.hardware_id
        self.device = board.device

    def read(self, server: ServerProcess) -> dict[str, Any]:
        """The same of any release."""
        ann = Person(server.url, self.ann.headers)
        leases = [lease(server, f"track-{number}") for number in range(3)]
        latest = f"/telemetry/v1/devices/{self.hardware_id}/latest"
        files = ann.call("GET", f"/projects/{self.project_id}/files")
        return {
            "leases": leases,
            "reading": _call(server, "GET", latest, server.operator)["sensors"],
            "files": files["files"],
            "version": files["version"],
            "me": ann.call("GET", "/me")["account_id"],
        }


def lease(server: ServerProcess, track: str) -> dict[str, Any]:
    """The lease of this track, made or found."""
    headers = server.track | {"X-Track-ID": track}
    answer: dict[str, Any] = _call(server, "POST", "/v1/allocate", headers)
    return answer


def _call(
    server: ServerProcess, method: str, path: str, headers: dict[str, str], body: Any = None
) -> Any:
    answer = httpx.request(method, server.url + path, headers=headers, json=body, timeout=60)
    assert answer.status_code in (200, 201), (path, answer.text)
    return answer.json()


def test_what_0_2_0_kept_in_its_data_dir_is_served_and_by_0_2_0_again(tmp_path: Path) -> None:
    data_dir, backup = tmp_path / "data", tmp_path / "before.tar"
    release = release_0_2_0()
    with sandyard_serve(data_dir, environment=release) as old:
        assert _version(old) == "0.2.0"
        data = Data(old)
        wait_for_pool(old)
        before = data.read(old)
        _on(data_dir, "backup", str(backup))
    plan = _on(data_dir, "db", "upgrade", "--dry-run")
    assert f"platform: version 0023 to {platform_schema.MIGRATIONS.head}\n" in plan
    assert "  Stop the servers of the previous release first.\n" in plan
    with sandyard_serve(data_dir) as new:
        assert data.read(new) == before
        code, said = verify(data_dir)
    assert code == 0, said
    _on(tmp_path / "back", "restore", str(backup))
    with sandyard_serve(tmp_path / "back", environment=release) as old:
        assert data.read(old) == before


def _on(data_dir: Path, *arguments: str) -> str:
    """What a command of this release prints."""
    return sandyard(data_dir.parent, *arguments, "--data-dir", str(data_dir), environment={})


def _version(server: ServerProcess) -> str:
    return str(httpx.get(server.url + "/openapi.json", timeout=60).json()["info"]["version"])


@pytest.mark.parametrize(
    "engine", ["postgresql", pytest.param("dynamodb", marks=pytest.mark.torture)]
)
async def test_what_0_2_0_leased_on_a_shared_engine_is_served_and_by_0_2_0_again(
    tmp_path: Path, postgres_url: str, dynamo_url: str, engine: str
) -> None:
    shared = {"PARTS": "broker"} | await shared_engine(engine, postgres_url, dynamo_url)
    old_release = release_0_2_0()
    first = ("db", "upgrade") if engine == "postgresql" else ("tables", "create")
    with csp_simulator(tmp_path, "--count", "20") as provider:
        shared |= {"CSP_BASE_URL": provider, "CSP_API_TOKEN": "any"}
        sandyard(tmp_path, *first, environment=shared | old_release)
        with sandyard_serve(tmp_path / "old", environment=shared | old_release) as old:
            wait_for_pool(old)
            before = [lease(old, f"track-{number}") for number in range(3)]
        expand(tmp_path, engine, shared)
        with sandyard_serve(tmp_path / "new", environment=shared) as new:
            assert [lease(new, f"track-{number}") for number in range(3)] == before
            made = lease(new, "track-new")
            code, said = verify(tmp_path / "new", shared)
        assert code == 0, said
        with sandyard_serve(tmp_path / "old", environment=shared | old_release) as old:
            assert [lease(old, f"track-{number}") for number in range(3)] == before
            assert lease(old, "track-new") == made


class Load:
    """Tracks that lease and give back, at whichever of the servers are in turn."""

    def __init__(self, servers: Sequence[ServerProcess]) -> None:
        self.servers = list(servers)
        self.leased: list[str] = []
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        async with httpx.AsyncClient(timeout=60) as http:
            await asyncio.gather(*(self._tracks(http, caller) for caller in range(4)))

    async def _tracks(self, http: httpx.AsyncClient, caller: int) -> None:
        for number in itertools.count():
            if self._stopped.is_set():
                return
            server = self.servers[number % len(self.servers)]
            headers = server.track | {"X-Track-ID": f"track-{caller}-{number}"}
            answer = await http.post(server.url + "/v1/allocate", headers=headers)
            assert answer.status_code == 201, answer.text
            self.leased.append(answer.json()["sandbox_id"])
            await asyncio.sleep(0.05)

    async def some_more(self) -> None:
        wanted = len(self.leased) + 12
        while len(self.leased) < wanted:
            await asyncio.sleep(0.02)

    def stop(self) -> None:
        self._stopped.set()


@pytest.mark.torture
async def test_two_releases_serve_side_by_side_while_one_replaces_the_other(
    tmp_path: Path, postgres_url: str
) -> None:
    shared = {"DATABASE_URL": await create_database(postgres_url), "PARTS": "broker"}
    next_release = release_that_expands(tmp_path / "next")
    with csp_simulator(tmp_path, "--count", "3000") as provider:
        shared |= {"CSP_BASE_URL": provider, "CSP_API_TOKEN": "any"}
        sandyard(tmp_path, "db", "upgrade", environment=shared)
        with sandyard_serve(tmp_path / "n", environment=shared) as old:
            await asyncio.to_thread(wait_for_pool, old)
            load = Load([old])
            calls = asyncio.create_task(load.run())
            await asyncio.to_thread(_expand, tmp_path, shared | next_release)
            await load.some_more()
            assert httpx.get(old.url + "/readyz", timeout=60).status_code == 200
            with sandyard_serve(tmp_path / "next-data", environment=shared | next_release) as new:
                load.servers.append(new)
                await load.some_more()
                load.servers.remove(old)
                await load.some_more()
                assert await asyncio.to_thread(old.stop) == 0
                await load.some_more()
                load.stop()
                await calls
                await asyncio.to_thread(_contract, tmp_path, shared)
                assert httpx.get(new.url + "/readyz", timeout=60).status_code == 200
    assert len(set(load.leased)) == len(load.leased)
    await _require_newer_code(shared["DATABASE_URL"])
    code, said = verify(tmp_path / "next-data", shared | next_release)
    assert code == 0, said


def _expand(folder: Path, environment: dict[str, str]) -> None:
    plan = sandyard(folder, "db", "upgrade", "--dry-run", environment=environment)
    assert f"  {after(MIGRATIONS.head)}  Expand.\n" in plan
    assert "  Servers of the previous release can keep running.\n" in plan
    sandyard(folder, "db", "upgrade", environment=environment)


def _contract(folder: Path, shared: dict[str, str]) -> None:
    release = release_that_contracts(folder / "after-next")
    sandyard(folder, "db", "upgrade", environment=shared | release)


async def _require_newer_code(url: str) -> None:
    """This release has to be gone before the contraction."""
    database = PostgresDatabase(sa.make_url(url), pool_size=1)
    try:
        with pytest.raises(UnavailableError, match="Deploy the newer release"):
            await MIGRATIONS.require_head(database)
    finally:
        await database.close()
