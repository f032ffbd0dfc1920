"""Proxies between the servers and their engine, which make it unavailable or throttle it."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import ClientSession, web

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_BLOCK = 1 << 16
_THROTTLED = {
    "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
    "message": "The level of configured provisioned throughput for the table was exceeded.",
}


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
            self.cut()

    def cut(self) -> None:
        self.is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self.is_cut = False

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
