"""A proxy in front of PostgreSQL that cuts connections, before or after the server has heard what
was sent, and holds up what passes it."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_CHUNK = 65536


@dataclass(frozen=True, slots=True)
class Cuts:
    """What goes wrong, each a share of the messages to the server."""

    reset: float = 0.0
    """The connection breaks, and the server never hears of the message."""
    drop: float = 0.0
    """The server hears of it and answers, and the connection breaks instead of the answer."""
    delay: float = 0.0
    delay_sec: float = 0.0


@dataclass(slots=True)
class PostgresProxy:
    """Listens on loopback; the server is at a Unix socket."""

    socket: Path
    randomness: random.Random
    cuts: Cuts = field(default_factory=Cuts)
    injected: Counter[str] = field(default_factory=Counter)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it or it is cut."""
        to_server: asyncio.StreamWriter | None = None
        try:
            from_server, to_server = await asyncio.open_unix_connection(self.socket)
            link = _Link()
            up = asyncio.create_task(self._up(reader, to_server, link))
            down = asyncio.create_task(self._down(from_server, writer, link))
            _, unfinished = await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            for each in unfinished:
                each.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # the server is gone, or the proxy stops
        finally:
            writer.transport.abort()
            if to_server is not None:
                to_server.transport.abort()

    async def _up(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: "_Link"
    ) -> None:
        with suppress(OSError):
            while message := await reader.read(_CHUNK):
                if self._happens("delay", self.cuts.delay):
                    await asyncio.sleep(self.cuts.delay_sec)
                if self._happens("reset", self.cuts.reset):
                    return
                link.is_dropping = self._happens("drop", self.cuts.drop)
                writer.write(message)
                await writer.drain()

    async def _down(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: "_Link"
    ) -> None:
        with suppress(OSError):
            while message := await reader.read(_CHUNK):
                if link.is_dropping:
                    return
                writer.write(message)
                await writer.drain()

    def _happens(self, kind: str, share: float) -> bool:
        happens = self.randomness.random() < share
        self.injected[kind] += happens
        return happens


@dataclass(slots=True)
class _Link:
    is_dropping: bool = False


@asynccontextmanager
async def postgres_proxy(socket: Path, *, seed: int) -> AsyncIterator[PostgresProxy]:
    proxy = PostgresProxy(socket, random.Random(seed))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await server.wait_closed()
