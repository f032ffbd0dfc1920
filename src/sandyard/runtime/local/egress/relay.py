"""Copies bytes between two connections."""

import asyncio
import re
from collections.abc import Callable

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_CHUNK_BYTES = 64 * 1024
_INTERIM = re.compile(rb"HTTP/1\.[01] 1\d\d ")


async def relay(
    near: Streams,
    far: Streams,
    *,
    idle_sec: float,
    on_sent: Callable[[int], None],
    on_received: Callable[[int], None],
    request_bytes: int | None = None,
    change_head: Callable[[bytes], bytes] = bytes,
) -> None:
    """Copy bytes both ways until both sides have closed, or nothing came for `idle_sec`. With
    `request_bytes`, no more than that is sent to the far side, and the connection ends with its
    answer, whose head is changed."""
    out = asyncio.ensure_future(_copy(near[0], far[1], idle_sec, on_sent, request_bytes))
    if request_bytes is None:
        back = asyncio.ensure_future(_copy(far[0], near[1], idle_sec, on_received, None))
    else:
        back = asyncio.ensure_future(
            _copy_answer(far[0], near[1], idle_sec, on_received, change_head)
        )
    try:
        await (asyncio.gather(out, back) if request_bytes is None else back)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # one side is gone, and so is the connection
    finally:
        out.cancel()
        back.cancel()
        await asyncio.gather(out, back, return_exceptions=True)
        near[1].close()
        far[1].close()


async def _copy_answer(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    idle_sec: float,
    on_bytes: Callable[[int], None],
    change_head: Callable[[bytes], bytes],
) -> None:
    is_over = False
    while not is_over:
        async with asyncio.timeout(idle_sec):
            head = await source.readuntil(b"\r\n\r\n")
        on_bytes(len(head))
        is_over = not _INTERIM.match(head)
        sink.write(change_head(head) if is_over else head)
    await _copy(source, sink, idle_sec, on_bytes, None)


async def _copy(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    idle_sec: float,
    on_bytes: Callable[[int], None],
    most: int | None,
) -> None:
    left = most
    while left is None or left > 0:
        async with asyncio.timeout(idle_sec):
            chunk = await source.read(_CHUNK_BYTES if left is None else min(left, _CHUNK_BYTES))
            if not chunk:
                break
            sink.write(chunk)
            on_bytes(len(chunk))
            await sink.drain()
        left = None if left is None else left - len(chunk)
    if most is None and sink.can_write_eof():
        sink.write_eof()
