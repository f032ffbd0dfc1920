"""Forwards connections from one socket to another, outside the sandbox and for its clones.

A copy runs in isolation while a repository is cloned, so this knows only the standard library.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]
_CHUNK_BYTES = 64 * 1024


async def forward(near: Streams, far: Streams) -> None:
    """Copy bytes both ways until both sides have closed."""
    copies = [asyncio.ensure_future(_copy(near[0], far[1]))]
    copies.append(asyncio.ensure_future(_copy(far[0], near[1])))
    try:
        await asyncio.gather(*copies)
    except OSError:
        pass  # one side is gone, and so is the connection
    finally:
        for copy in copies:
            copy.cancel()
        near[1].close()
        far[1].close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while chunk := await source.read(_CHUNK_BYTES):
        sink.write(chunk)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()


class Forwarder:
    """Forwards each connection it accepts; those beyond `limit` wait."""

    def __init__(self, connect: Connect, *, limit: int) -> None:
        self._connect = connect
        self._slots = asyncio.Semaphore(limit)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._slots:
            try:
                far = await self._connect()
            except OSError:
                writer.close()
                return
            await forward((reader, writer), far)


async def run_behind_proxy(proxy_socket: str, port: int, command: list[str]) -> int:
    """Run a command with the proxy behind this socket on `port`, its only egress."""
    forwarder = Forwarder(lambda: asyncio.open_unix_connection(proxy_socket), limit=16)
    server = await asyncio.start_server(forwarder, "127.0.0.1", port)
    process = await asyncio.create_subprocess_exec(*command)
    code = await process.wait()
    server.close()
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(run_behind_proxy(sys.argv[1], int(sys.argv[2]), sys.argv[3:])))
