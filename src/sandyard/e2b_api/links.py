"""Limits signed links that name no sandbox: to find who signed one takes a hash per sandbox."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.e2b_api.envd.connect import SANDBOX_ID
from sandyard.e2b_api.errors import AccessTokenMissingError
from sandyard.e2b_api.tokens import FileLink
from sandyard.kit.errors import RateLimitedError
from sandyard.kit.rate_limit import RateLimit

_MOST_WAITING = 32
_MOST_FOUND = 10_000


class LinkSigners:
    """The sandboxes whose tokens signed links that name none. One search runs at a time, so that
    all together take a bounded part of this process; a link that was found needs none."""

    def __init__(self) -> None:
        self._found: dict[FileLink, str] = {}
        self._slot = asyncio.Semaphore(1)
        self._waiting = 0

    async def find(self, link: FileLink, search: Callable[[], Awaitable[str | None]]) -> str | None:
        """The id of the sandbox. Raises RateLimitedError if too many searches wait."""
        if (known := self._found.get(link)) is not None:
            return known
        if self._waiting >= _MOST_WAITING:
            raise RateLimitedError(retry_after=1)
        self._waiting += 1
        try:
            async with self._slot:
                found = await search()
        finally:
            self._waiting -= 1
        if found is not None:
            self._found[link] = found
            if len(self._found) > _MOST_FOUND:
                del self._found[next(iter(self._found))]
        return found


class UnnamedLinks:
    """Passes requests on. Raises RateLimitedError for one that names no sandbox, if too many such
    requests from its address were refused."""

    def __init__(
        self, app: ASGIApp, refusals: RateLimit, *, address_of: Callable[[Request], str]
    ) -> None:
        self._app = app
        self._refusals = refusals
        self._address_of = address_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get(SANDBOX_ID) is not None:
            await self._app(scope, receive, send)
            return
        address = self._address_of(Request(scope))
        if (wait := await self._refusals.peek(address)) is not None:
            raise RateLimitedError(retry_after=wait)
        try:
            await self._app(scope, receive, send)
        except AccessTokenMissingError:
            await self._refusals.wait_for(address)
            raise
