"""The environment of a game day: the provider, the servers, their engine and Prometheus."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx

from sandyard.kit.free_ports import free_port
from sandyard.tools.gameday.engines import EngineAccess, SmallDisk, TcpProxy, engine_for, small_disk
from sandyard.tools.gameday.model import Engine, Fault, GameDayError, Part, Scenario
from sandyard.tools.gameday.processes import (
    START_SEC,
    Program,
    log_in,
    new_api_key,
    prometheus,
    server,
    simulator,
    skewed_server,
)
from sandyard.tools.gameday.readings import OPERATOR_TOKEN
from sandyard.tools.gameday.skewed import ClockOffset

TRACK_TOKEN = "gameday-track-token"  # noqa: S105 - for this run's servers on loopback
ADMIN_TOKEN = "gameday-admin-token"  # noqa: S105
_COMMON = {"JOB_LEASE_SEC": "10", "LOG_LEVEL": "WARNING"}
_BROKER = {
    "PARTS": "broker",
    "BROKER_API_TOKEN": TRACK_TOKEN,
    "BROKER_ADMIN_TOKEN": ADMIN_TOKEN,
    "CSP_API_TOKEN": "none",
    "CSP_MAX_ATTEMPTS": "1",
    "CSP_TIMEOUT_READ_SEC": "2",
    "SYNC_INTERVAL_SEC": "5",
    "CLEANUP_INTERVAL_SEC": "2",
    "DELETION_BACKOFF_BASE_SEC": "1",
    "DELETION_BACKOFF_MAX_SEC": "2",
}
_SETTINGS: Mapping[Part, Mapping[str, str]] = {
    Part.BROKER: _BROKER,
    Part.PLATFORM: {"PARTS": "platform", "ENDS_INTERVAL_SEC": "1"},
    Part.PREVIEWS: {"PARTS": "platform,previews", "PREVIEW_PROVIDER": "e2b"},
    Part.TELEMETRY: {
        "PARTS": "telemetry",
        "TELEMETRY_ADMIN_TOKEN": OPERATOR_TOKEN,
        "API_KEY_PEPPER": "gameday-pepper-of-this-run",
    },
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a game day runs."""

    engine: Engine
    engine_url: str | None
    folder: Path
    rules: Path


@dataclass(frozen=True, slots=True)
class Provider:
    """Where sandboxes of the pool, or previews, come from."""

    program: Program | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of the servers, to find it."""
    connection: TcpProxy | None = None

    @property
    def url(self) -> str:
        if self.program is None:
            raise GameDayError("This part has no provider.")
        return self.program.url


@dataclass(frozen=True, slots=True)
class Stage:
    client: httpx.AsyncClient
    provider: Provider
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
        counts: dict[str, int] = (await self.admin("GET", "stats")).raise_for_status().json()
        return counts

    async def change_provider(self, **faults: object) -> None:
        answer = await self.client.patch(f"{self.provider.url}/_sim", json=faults)
        answer.raise_for_status()

    async def provider_has(self) -> int:
        count: int = (await self.client.get(f"{self.provider.url}/_sim")).json()["sandboxes"]
        return count

    async def await_pool(self, total: int) -> None:
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
        access = await stack.enter_async_context(
            engine_for(place.engine, place.engine_url, scenario.part)
        )
        disk = None
        if scenario.fault is Fault.DISK_FULL:
            disk = await stack.enter_async_context(small_disk(place.folder / "disk"))
        data_dir = (disk.path if disk else place.folder) / "data"
        provider = await _provider(stack, client, scenario, place, pool)
        own = {**access.settings, **scenario.settings, **provider.settings}
        settings = {**_COMMON, **_SETTINGS[scenario.part], **own}
        is_skewed = scenario.fault is Fault.CLOCK_SKEW
        clock = ClockOffset(place.folder / "clock") if is_skewed else None
        servers = await _started(stack, *_servers(place, data_dir, settings, clock))
        watching = await _started(stack, *_watching(place, servers))
        [seen_by] = watching or (None,)
        stage = Stage(client, provider, servers, access, settings, data_dir, seen_by, disk, clock)
        if scenario.part is Part.BROKER:
            await stage.await_pool(pool)
        yield stage


async def _provider(
    stack: AsyncExitStack, client: httpx.AsyncClient, scenario: Scenario, place: Place, pool: int
) -> Provider:
    """The simulated one for the Broker. For Previews another server, which speaks E2B's API, behind
    a connection that can break."""
    if scenario.part is Part.BROKER:
        [program] = await _started(stack, simulator(place.folder, pool))
        return Provider(program, {"CSP_BASE_URL": program.url})
    if scenario.part is not Part.PREVIEWS:
        return Provider()
    data_dir = place.folder / "provider"
    own = {**_COMMON, **_SETTINGS[Part.PLATFORM]}
    [program] = await _started(stack, server(place.folder, 0, data_dir, own))
    key = await new_api_key(client, program.url, await log_in(client, program.url, data_dir))
    connection = TcpProxy(partial(asyncio.open_connection, "127.0.0.1", program.port), free_port())
    await connection.start()
    stack.push_async_callback(connection.stop)
    url = f"http://127.0.0.1:{connection.port}/e2b"
    found_by = {"E2B_API_KEY": key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url}
    return Provider(program, found_by, connection)


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
    program = shutil.which("prometheus")
    if program is not None and place.rules.is_file():
        targets = [f"127.0.0.1:{each.port}" for each in servers]
        yield prometheus(program, place.folder, place.rules, targets)
