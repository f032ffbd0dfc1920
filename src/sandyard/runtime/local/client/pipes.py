"""Reads and writes pipes without blocking a thread, because the other end may never continue and
all machines share the server's threads."""

import asyncio
import os
from collections.abc import AsyncIterator

from sandyard.runtime.errors import RuntimeUnavailableError
from sandyard.runtime.local.ipc.packets import END, readable, writable

_LINE_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20


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


async def whole_content(pipe: int) -> AsyncIterator[bytes]:
    """The content up to `END`. Raises RuntimeUnavailableError if it ends before that."""
    last = b""
    async for piece in _pieces(pipe):
        if before := last + piece[:-1]:
            yield before
        last = piece[-1:]
    if last != END:
        raise RuntimeUnavailableError(reason="the machine's response is incomplete")


async def _pieces(pipe: int) -> AsyncIterator[bytes]:
    os.set_blocking(pipe, False)
    try:
        while True:
            try:
                piece = os.read(pipe, _PIECE_BYTES)
            except BlockingIOError:
                await readable(pipe)
                continue
            if not piece:
                return
            yield piece
            await asyncio.sleep(0)
    finally:
        os.close(pipe)


async def write_whole(pipe: int, piece: bytes) -> None:
    """Write to a nonblocking pipe. Raises OSError if its reader is gone."""
    left = memoryview(piece)
    while left:
        try:
            left = left[os.write(pipe, left) :]
        except BlockingIOError:
            await writable(pipe)
