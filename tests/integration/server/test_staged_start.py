"""A start in two stages: ready means the same, and whoever asks for a late part waits for it."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import dedent

import httpx
import pytest

from sandyard.entrypoints.http.api import create_app
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.entrypoints.server.data_dir import with_secrets
from sandyard.entrypoints.server.parts import RunningParts
from sandyard.entrypoints.server.staged_start import StagedStart
from sandyard.kit.observability.metrics import new_registry
from sandyard.settings import load_settings
from sandyard.wiring.part import Part

LATE = {
    "/api/v1/me": 401,
    "/api/v1/projects": 401,
    "/api/v1/nothing": 404,
    "/v1/nothing": 404,
    "/console": 303,
    "/e2b/sandboxes": 401,
    "/docs": 200,
    "/openapi.json": 200,
    "/metrics": 200,
}
"""What a client is answered once all parts are there."""


@dataclass
class Staged:
    start: StagedStart
    client: httpx.AsyncClient
    data_dir: Path


@asynccontextmanager
async def staged(data_dir: Path) -> AsyncIterator[Staged]:
    """A server of all parts after its first stage."""
    registry = new_registry()
    async with AsyncExitStack() as stack:
        settings = with_secrets(load_settings(), data_dir)
        start = StagedStart(
            settings,
            RunningParts(settings, data_dir, registry, stack),
            start=_prepare,
            new_app=partial(create_app, settings, registry=registry, in_flight=InFlight()),
        )
        transport = httpx.ASGITransport(await start.open())
        client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        yield Staged(start, await stack.enter_async_context(client), data_dir)


async def _prepare(part: Part) -> None:
    await part.prepare()


async def test_who_asks_for_a_late_part_waits_for_it_and_is_answered(tmp_path: Path) -> None:
    async with staged(tmp_path) as server:
        assert (await server.client.get("/readyz")).status_code == 200
        assert (await server.client.get("/v1/admin/stats")).status_code == 401
        assert (await server.client.get("/telemetry/v1/devices")).status_code == 401
        waiting = {path: asyncio.create_task(server.client.get(path)) for path in LATE}
        hosted = asyncio.create_task(
            server.client.get("/healthz", headers={"Host": "8080-sbx-unknown.localhost"})
        )
        assert (await server.client.get("/healthz")).json() == {"status": "ok"}
        await asyncio.wait([*waiting.values(), hosted], timeout=0.2)
        assert not [path for path, task in waiting.items() if task.done()]
        assert not hosted.done(), "the gateway's hosts are not the API's"
        assert {part.name for part in await server.start.complete()} == {"platform", "previews"}
        answers = {path: (await task).status_code for path, task in waiting.items()}
        assert answers == LATE
        assert (await hosted).json()["error"]["code"] == "ADDRESS_UNKNOWN"
        assert (await server.client.get("/readyz")).status_code == 200
        assert (await server.client.get("/v1/admin/stats?x=1")).status_code == 400
        measured = (await server.client.get("/metrics")).text
        assert 'route="/api/v1/me",status="401"' in measured, "by the same metrics as before"
        assert 'route="/telemetry/v1/devices",status="401"' in measured


@pytest.mark.parametrize("part", ["platform", "previews"])
async def test_a_server_is_not_ready_while_the_engine_of_a_late_part_is_away(
    tmp_path: Path, part: str
) -> None:
    async with staged(tmp_path) as server:
        (tmp_path / f"{part}.db").rename(tmp_path / "elsewhere")
        answer = await server.client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["error"]["details"] == {"engine": "sqlite", "part": part}
        (tmp_path / "elsewhere").rename(tmp_path / f"{part}.db")
        assert (await server.client.get("/readyz")).status_code == 200


def test_the_first_stage_imports_no_late_part(tmp_path: Path) -> None:
    program = f"""
        import asyncio, sys
        from pathlib import Path
        from tests.integration.server.test_staged_start import staged

        async def main():
            async with staged(Path({str(tmp_path)!r})):
                late = ("platform.", "previews.", "runtime.", "bootstrap.previews", "gateway.app")
                names = [name.removeprefix("sandyard.") for name in sys.modules]
                light = {{f"platform.wiring{{each}}" for each in ("", ".identity", ".commands")}}
                print(*sorted(n for n in names if n.startswith(late) and n not in light))

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [
        "platform.schema",
        "platform.schema.migrations",
        "platform.schema.tables",
        "previews.stores",
        "previews.stores.schema",
        "previews.stores.tables",
    ]
