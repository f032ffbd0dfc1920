"""Carries connections from one socket to another, outside the sandbox and for its clones.

A copy runs inside the walls while a repository is cloned, so this knows only the standard library.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]
_CHUNK = 64 * 1024


async def carry(near: Streams, far: Streams) -> None:
    """Copy bytes both ways until both sides have said all they had to say."""
    copies = [asyncio.ensure_future(_copy(near[0], far[1]))]
    copies.append(asyncio.ensure_future(_copy(far[0], near[1])))
    try:
        await asyncio.gather(*copies)
    except OSError:
        pass  # one side is gone, and so is the conversation
    finally:
        for copy in copies:
            copy.cancel()
        near[1].close()
        far[1].close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while chunk := await source.read(_CHUNK):
        sink.write(chunk)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()


class Carriers:
    """The connections under way; those beyond `limit` wait for their turn."""

    def __init__(self, connect: Connect, *, limit: int) -> None:
        self._connect = connect
        self._turns = asyncio.Semaphore(limit)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._turns:
            try:
                far = await self._connect()
            except OSError:
                writer.close()
                return
            await carry((reader, writer), far)


async def gated(gate: str, port: int, command: list[str]) -> int:
    """Run a command whose only way out is the proxy on `port`, which is the socket `gate`."""
    carriers = Carriers(lambda: asyncio.open_unix_connection(gate), limit=16)
    server = await asyncio.start_server(carriers, "127.0.0.1", port)
    process = await asyncio.create_subprocess_exec(*command)
    code = await process.wait()
    server.close()
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(gated(sys.argv[1], int(sys.argv[2]), sys.argv[3:])))
