"""Copies the bytes of a connection both ways."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from sandyard.runtime.egress.http_heads import ProxyRequest, closing_answer

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Other = TypeVar("Other")
_CHUNK_BYTES = 64 * 1024
_INTERIM = re.compile(rb"HTTP/1\.[01] 1\d\d ")
_BROKEN = (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


@dataclass(frozen=True, slots=True)
class Relay:
    """Between the machine's side and the far one. A method returns when both have closed, one is
    gone, or nothing came for `idle_sec`."""

    near: Streams
    far: Streams
    idle_sec: float
    on_sent: Callable[[int], None]
    on_received: Callable[[int], None]

    async def tunnel(self, opening: Awaitable[bytes | Other]) -> Other | None:
        """Copy what the far side sends, and after the opening what the near side sends. If the
        opening is something else, nothing was sent, and it is returned."""
        try:
            async with asyncio.TaskGroup() as tasks:
                back = tasks.create_task(
                    self._copy(self.far[0], self.near[1], self.on_received, most=None)
                )
                first = await opening
                if not isinstance(first, bytes):
                    back.cancel()
                    return first
                await self._copy(self.near[0], self.far[1], self.on_sent, most=None, first=first)
        except* _BROKEN:
            pass
        return None

    async def exchange(self, request: ProxyRequest, body: bytes = b"") -> None:
        """Send one request, whose body begins with these bytes and has the length that its head
        says, and copy the answer, whose head is changed."""
        sink, head = self.far[1], request.head or b""
        sink.write(head)
        self.on_sent(len(head))
        most = request.body_bytes
        out = asyncio.ensure_future(
            self._copy(self.near[0], sink, self.on_sent, most=most, first=body[:most])
        )
        try:
            await self._copy_answer()
        except _BROKEN:
            pass
        finally:
            out.cancel()
            await asyncio.gather(out, return_exceptions=True)

    async def _copy_answer(self) -> None:
        source, sink = self.far[0], self.near[1]
        is_over = False
        while not is_over:
            async with asyncio.timeout(self.idle_sec):
                head = await source.readuntil(b"\r\n\r\n")
            self.on_received(len(head))
            is_over = not _INTERIM.match(head)
            sink.write(closing_answer(head) if is_over else head)
        await self._copy(source, sink, self.on_received, most=None)

    async def _copy(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        on_bytes: Callable[[int], None],
        *,
        most: int | None,
        first: bytes = b"",
    ) -> None:
        left, chunk = most, first
        while True:
            async with asyncio.timeout(self.idle_sec):
                if chunk:
                    sink.write(chunk)
                    on_bytes(len(chunk))
                    await sink.drain()
                left = None if left is None else left - len(chunk)
                if left == 0:
                    return
                chunk = await source.read(_CHUNK_BYTES if left is None else min(left, _CHUNK_BYTES))
            if not chunk:
                break
        if most is None and sink.can_write_eof():
            sink.write_eof()
