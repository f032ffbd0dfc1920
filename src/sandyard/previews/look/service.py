"""Looks at previews with a browser: one at a time per account, two per process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

from sandyard.previews.errors import LooksLimitError, PreviewNotRunningError
from sandyard.previews.look.model import Look, Viewport
from sandyard.previews.model import SandboxInfo
from sandyard.runtime.errors import PortClosedError
from sandyard.runtime.sessions.ports import PortConnection

_AT_ONCE = 2
_MOST_WAITING = 10
_PIECE = 1 << 16

Connect = Callable[[str], Awaitable[PortConnection]]
"""To the page of the sandbox with this id."""


class Browser(Protocol):
    def require(self) -> str:
        """Raises BrowserMissingError."""

    async def look(self, url: str, *, hosts: str, viewport: Viewport) -> Look:
        """Load the page, which reaches what `hosts` maps and nothing else; within half a minute,
        whatever the page does. Raises BrowserMissingError, BrowserFailedError."""


class RunningPreviewLookup(Protocol):
    async def running_sandbox(self, project_id: str, *, account_id: str) -> SandboxInfo | None: ...


class Looks:
    def __init__(
        self, previews: RunningPreviewLookup, browser: Browser, connect: Connect | None
    ) -> None:
        """Without `connect`, previews have public addresses."""
        self._previews = previews
        self._browser = browser
        self._connect = connect
        self._accounts: set[str] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def look(
        self, project_id: str, *, account_id: str, path: str, viewport: Viewport
    ) -> Look:
        """Raises PreviewNotRunningError, LooksLimitError, BrowserMissingError,
        BrowserFailedError."""
        info = await self._previews.running_sandbox(project_id, account_id=account_id)
        self._browser.require()
        if info is None:
            raise PreviewNotRunningError
        if account_id in self._accounts or len(self._accounts) >= _AT_ONCE + _MOST_WAITING:
            raise LooksLimitError(retry_after=5)
        self._accounts.add(account_id)
        try:
            async with self._slots, self._address(info) as (origin, hosts):
                return await self._browser.look(origin + path, hosts=hosts, viewport=viewport)
        finally:
            self._accounts.discard(account_id)

    @asynccontextmanager
    async def _address(self, info: SandboxInfo) -> AsyncIterator[tuple[str, str]]:
        """The page's origin, and what the browser reaches: the preview alone, whatever is
        private by a port of this machine that leads there."""
        url = urlsplit(info.preview_url)
        if self._connect is None:
            yield f"{url.scheme}://{url.netloc}", f"MAP * ~NOTFOUND, EXCLUDE {url.hostname}"
            return
        connect, sandbox_id = self._connect, info.sandbox_id

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                inner = await connect(sandbox_id)
                await asyncio.gather(_pump(reader, inner.writer), _pump(inner.reader, writer))
                inner.writer.close()
            except (OSError, PortClosedError):
                pass
            finally:
                writer.close()

        async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            yield f"http://{url.netloc}", f"MAP {url.hostname} 127.0.0.1:{port}, MAP * ~NOTFOUND"


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
