"""The engine of a game day: a separate database or tables, behind a proxy that injects faults."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

import asyncpg
import sqlalchemy as sa

from sandyard.kit.free_ports import free_port
from sandyard.tools.gameday.errors import GameDayError
from sandyard.tools.gameday.model import Engine
from sandyard.tools.gameday.processes import run_once, sandyard_command
from sandyard.tools.gameday.proxies import Stream, TcpProxy, ThrottlingProxy

_NAMES = {Engine.POSTGRESQL: "DATABASE_URL", Engine.DYNAMODB: "DDB_ENDPOINT_URL"}


@dataclass(frozen=True, slots=True)
class EngineAccess:
    """The servers' settings for their engine, and the proxy in between."""

    settings: Mapping[str, str]
    connection: TcpProxy | None = None
    throttle: ThrottlingProxy | None = None


@asynccontextmanager
async def engine_for(engine: Engine, url: str | None) -> AsyncIterator[EngineAccess]:
    """Raises GameDayError if the engine needs a URL and there is none."""
    if engine is Engine.SQLITE:
        yield EngineAccess({})
        return
    if not url:
        raise GameDayError(f"Set {_NAMES[engine]} to run a game day on {engine}.")
    opened = _postgresql if engine is Engine.POSTGRESQL else _dynamodb
    async with opened(url) as access:
        yield access


@asynccontextmanager
async def _postgresql(url: str) -> AsyncIterator[EngineAccess]:
    """A database that is created for the game day and dropped after it."""
    name = f"gameday_{uuid4().hex[:12]}"
    try:
        connection = await asyncpg.connect(url)
    except (OSError, asyncpg.PostgresError) as error:
        raise GameDayError(f"DATABASE_URL can't be reached: {error}") from error
    await connection.execute(f'CREATE DATABASE "{name}"')
    proxy = TcpProxy(_connector(url), free_port())
    await proxy.start()
    try:
        through = sa.make_url(url).set(host="127.0.0.1", port=proxy.port, database=name, query={})
        settings = {"DATABASE_URL": through.render_as_string(hide_password=False)}
        await _prepared("db", "upgrade", settings=settings)
        yield EngineAccess(settings, connection=proxy)
    finally:
        await proxy.stop()
        await connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        await connection.close()


def _connector(url: str) -> Callable[[], Awaitable[Stream]]:
    """Connects to the address of the URL, or to the socket in the folder that it names."""
    parsed = sa.make_url(url)
    folder, port = parsed.query.get("host"), parsed.port or 5432
    if isinstance(folder, str) and folder.startswith("/"):
        return partial(asyncio.open_unix_connection, f"{folder}/.s.PGSQL.{port}")
    return partial(asyncio.open_connection, parsed.host or "127.0.0.1", port)


@asynccontextmanager
async def _dynamodb(url: str) -> AsyncIterator[EngineAccess]:
    """Tables with unique names; they are not removed."""
    throttle = ThrottlingProxy(url, free_port())
    connect = partial(asyncio.open_connection, "127.0.0.1", throttle.port)
    connection = TcpProxy(connect, free_port())
    await throttle.start()
    await connection.start()
    settings = {
        "POOL_STORE": "dynamodb",
        "DDB_ENDPOINT_URL": f"http://127.0.0.1:{connection.port}",
        "DDB_TABLE_NAME": f"GameDay-{uuid4().hex[:12]}",
    }
    try:
        await _prepared("tables", "create", settings=settings)
        yield EngineAccess(settings, connection=connection, throttle=throttle)
    finally:
        await connection.stop()
        await throttle.stop()


async def _prepared(*arguments: str, settings: Mapping[str, str]) -> None:
    code, printed = await run_once(sandyard_command(*arguments), {"PARTS": "broker", **settings})
    if code:
        raise GameDayError(f"`sandyard {' '.join(arguments)}` failed: {printed[-500:]}")
