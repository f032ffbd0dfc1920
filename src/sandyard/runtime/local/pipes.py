"""Reading what comes through a pipe."""

import asyncio
import os
from collections.abc import AsyncIterator

_LINE_BYTES = 1 << 20


async def lines_of(pipe: int) -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
    )
    try:
        while line := await reader.readline():
            yield line
    finally:
        transport.close()
