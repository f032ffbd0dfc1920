"""Connections of the tests' own, which are closed also if the test fails.

What a failed test leaves open would be a ResourceWarning in a later test, and fail that too.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(
    port: int, host: str = "127.0.0.1", *, limit: int = 1 << 16
) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection(host, port, limit=limit)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()
