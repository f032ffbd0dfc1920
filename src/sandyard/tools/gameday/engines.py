"""The engine of a game day: a separate database or tables, behind a proxy that injects faults; and
a small file system for the data, which can be filled up."""

import asyncio
import contextlib
import errno
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

import asyncpg
import sqlalchemy as sa
from aiohttp import ClientSession, web

from sandyard.kit.free_ports import free_port
from sandyard.tools.gameday.model import Engine, GameDayError, Part
from sandyard.tools.gameday.processes import run_once, sandyard_command

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_BLOCK = 1 << 16
_THROTTLED = {
    "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
    "message": "The level of configured provisioned throughput for the table was exceeded.",
}
_MEGABYTES = 128
_NAMES = {Engine.POSTGRESQL: "DATABASE_URL", Engine.DYNAMODB: "DDB_ENDPOINT_URL"}


@dataclass(slots=True)
class TcpProxy:
    """Forwards bytes to the engine; while cut, closes every connection and accepts no new one."""

    connect: Callable[[], Awaitable[Stream]]
    port: int
    is_cut: bool = False
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self.set_cut(is_cut=True)

    def set_cut(self, *, is_cut: bool) -> None:
        self.is_cut = is_cut
        for writer in self._writers if is_cut else ():
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError):
            engine_reader, engine_writer = await self.connect()
            ours = {writer, engine_writer}
            self._writers |= ours
            try:
                await asyncio.gather(_pass(reader, engine_writer), _pass(engine_reader, writer))
            finally:
                self._writers -= ours


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@dataclass(slots=True)
class ThrottlingProxy:
    """Forwards requests to DynamoDB; throttles a share of them with DynamoDB's own error."""

    engine_url: str
    port: int
    share: float = 0.0
    randomness: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311
    _session: ClientSession | None = None
    _runner: web.AppRunner | None = None

    async def start(self) -> None:
        self._session = ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _serve(self, request: web.Request) -> web.Response:
        if self.randomness.random() < self.share:
            return web.json_response(
                _THROTTLED, status=400, content_type="application/x-amz-json-1.0"
            )
        if self._session is None:
            raise web.HTTPServiceUnavailable
        headers = {k: v for k, v in request.headers.items() if k.lower() != "content-length"}
        url = self.engine_url.rstrip("/") + request.path_qs
        body = await request.read()
        async with self._session.request(request.method, url, data=body, headers=headers) as got:
            passed = {k: v for k, v in got.headers.items() if k.lower() in _PASSED}
            return web.Response(status=got.status, body=await got.read(), headers=passed)


_PASSED = {"content-type", "content-encoding", "x-amzn-requestid", "x-amz-crc32"}


@dataclass(frozen=True, slots=True)
class EngineAccess:
    """The servers' settings for their engine, and the proxy in between."""

    settings: Mapping[str, str]
    connection: TcpProxy | None = None
    throttle: ThrottlingProxy | None = None


@asynccontextmanager
async def engine_for(engine: Engine, url: str | None, part: Part) -> AsyncIterator[EngineAccess]:
    """For the data of this part. Raises GameDayError if it needs a URL and there is none."""
    if engine is Engine.SQLITE:
        yield EngineAccess({})
        return
    if not url:
        raise GameDayError(f"Set {_NAMES[engine]} to run a game day on {engine}.")
    opened = _postgresql if engine is Engine.POSTGRESQL else _dynamodb
    async with opened(url, part) as access:
        yield access


@asynccontextmanager
async def _postgresql(url: str, part: Part) -> AsyncIterator[EngineAccess]:
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
        await _prepared("db", "upgrade", settings={"PARTS": part, **settings})
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
async def _dynamodb(url: str, part: Part) -> AsyncIterator[EngineAccess]:
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
        "TELEMETRY_STORE": "dynamodb",
        "TELEMETRY_TABLE_PREFIX": f"GameDay-{uuid4().hex[:12]}-",
    }
    try:
        await _prepared("tables", "create", settings={"PARTS": part, **settings})
        yield EngineAccess(settings, connection=connection, throttle=throttle)
    finally:
        await connection.stop()
        await throttle.stop()


async def _prepared(*arguments: str, settings: Mapping[str, str]) -> None:
    code, printed = await run_once(sandyard_command(*arguments), settings)
    if code:
        raise GameDayError(f"`sandyard {' '.join(arguments)}` failed: {printed[-500:]}")


@dataclass(frozen=True, slots=True)
class SmallDisk:
    path: Path

    def fill(self) -> None:
        """Fill it to the last byte."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                _write_while_it_fits(file.write, size)

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.path / "filler"


def _write_while_it_fits(write: Callable[[bytes], int | None], size: int) -> None:
    try:
        while write(bytes(size)) == size:
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@asynccontextmanager
async def small_disk(path: Path) -> AsyncIterator[SmallDisk]:
    path.mkdir()  # noqa: ASYNC240 - nothing else runs yet
    options = f"size={_MEGABYTES}m,mode=755"
    arguments = ["mount", "-t", "tmpfs", "-o", options, "sandyard-gameday", str(path)]
    code, printed = await run_once(arguments, {})
    if code:
        raise GameDayError(f"disk-full needs root, to mount a small file system: {printed}")
    try:
        yield SmallDisk(path)
    finally:
        await run_once(["umount", "--lazy", str(path)], {})
