"""The environment of a game day: the provider, the servers, their engine and Prometheus."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from sandyard.tools.gameday.disks import SmallDisk, small_disk
from sandyard.tools.gameday.engines import EngineAccess, engine_for
from sandyard.tools.gameday.errors import GameDayError
from sandyard.tools.gameday.model import Engine, Fault, Scenario
from sandyard.tools.gameday.processes import (
    START_SEC,
    Program,
    find_prometheus,
    server,
    simulator,
    skewed_server,
)
from sandyard.tools.gameday.prometheus import prometheus
from sandyard.tools.gameday.skewed import ClockOffset

TRACK_TOKEN = "gameday-track"  # noqa: S105 - for this run's servers on loopback
ADMIN_TOKEN = "gameday-admin"  # noqa: S105
_SETTINGS = {
    "PARTS": "broker",
    "BROKER_API_TOKEN": TRACK_TOKEN,
    "BROKER_ADMIN_TOKEN": ADMIN_TOKEN,
    "CSP_API_TOKEN": "none",
    "CSP_MAX_ATTEMPTS": "1",
    "CSP_TIMEOUT_READ_SEC": "2",
    "SYNC_INTERVAL_SEC": "5",
    "CLEANUP_INTERVAL_SEC": "2",
    "JOB_LEASE_SEC": "10",
    "DELETION_BACKOFF_BASE_SEC": "1",
    "DELETION_BACKOFF_MAX_SEC": "2",
    "LOG_LEVEL": "WARNING",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a game day runs."""

    engine: Engine
    engine_url: str | None
    folder: Path
    rules: Path


@dataclass(frozen=True, slots=True)
class Stage:
    client: httpx.AsyncClient
    provider: Program
    servers: tuple[Program, ...]
    engine: EngineAccess
    settings: Mapping[str, str]
    data_dir: Path
    prometheus: Program | None
    disk: SmallDisk | None
    clock: ClockOffset | None
    """The clock of the last server."""

    async def admin(self, method: str, path: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        url = f"{self.servers[0].url}/v1/admin/{path}"
        return await self.client.request(method, url, headers=headers)

    async def counts(self) -> Mapping[str, int]:
        """Sandboxes by status, as currently in the pool."""
        counts: dict[str, int] = (await self.admin("GET", "stats")).raise_for_status().json()
        return counts

    async def change_provider(self, **faults: object) -> None:
        answer = await self.client.patch(f"{self.provider.url}/_sim", json=faults)
        answer.raise_for_status()

    async def provider_has(self) -> int:
        count: int = (await self.client.get(f"{self.provider.url}/_sim")).json()["sandboxes"]
        return count

    async def await_pool(self, total: int) -> None:
        """Wait until the pool has this many."""
        for _ in range(START_SEC * 5):
            with contextlib.suppress(httpx.HTTPError):
                if (await self.counts())["total"] >= total:
                    return
            await asyncio.sleep(0.2)
        raise GameDayError(f"The pool did not reach {total} sandboxes.")


@asynccontextmanager
async def stage_for(scenario: Scenario, place: Place, pool: int) -> AsyncIterator[Stage]:
    """Everything started and ready; stopped and removed after the block, however it ends."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client())
        access = await stack.enter_async_context(engine_for(place.engine, place.engine_url))
        disk = None
        if scenario.fault is Fault.DISK_FULL:
            disk = await stack.enter_async_context(small_disk(place.folder / "disk"))
        data_dir = (disk.path if disk else place.folder) / "data"
        [provider] = await _started(stack, simulator(place.folder, pool))
        own = {**access.settings, **scenario.settings, "CSP_BASE_URL": provider.url}
        settings = {**_SETTINGS, **own}
        clock = ClockOffset(place.folder / "clock") if scenario.is_skewed else None
        servers = await _started(stack, *_servers(place, data_dir, settings, clock))
        watching = await _started(stack, *_watching(place, servers))
        [seen_by] = watching or (None,)
        stage = Stage(client, provider, servers, access, settings, data_dir, seen_by, disk, clock)
        await stage.await_pool(pool)
        yield stage


async def _started(stack: AsyncExitStack, *programs: Program) -> tuple[Program, ...]:
    """All ready; the stack stops them."""
    for each in programs:
        stack.push_async_callback(each.stop)
    await asyncio.gather(*(each.start() for each in programs))
    return programs


def _servers(
    place: Place, data_dir: Path, settings: Mapping[str, str], clock: ClockOffset | None
) -> Iterator[Program]:
    """One on SQLite; two on a shared engine, the second with this clock if there is one."""
    if place.engine is Engine.SQLITE:
        yield server(place.folder, 1, data_dir, settings)
        return
    yield server(place.folder, 1, data_dir / "1", settings)
    if clock is None:
        yield server(place.folder, 2, data_dir / "2", settings)
    else:
        yield skewed_server(place.folder, 2, data_dir / "2", settings, clock.file)


def _client() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=500, max_keepalive_connections=100)
    return httpx.AsyncClient(timeout=30, limits=limits)


def _watching(place: Place, servers: tuple[Program, ...]) -> Iterator[Program]:
    program = find_prometheus()
    if program is not None and place.rules.is_file():
        targets = [f"127.0.0.1:{each.port}" for each in servers]
        yield prometheus(program, place.folder, place.rules, targets)
