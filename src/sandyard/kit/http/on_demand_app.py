"""Applications that are created after startup, so that startup need not wait for them."""

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send


class OnDemandApp:
    """An application that is imported and created when it is prepared or first called: in a thread,
    so that other requests are not blocked."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._app: ASGIApp | None = None
        self._making = asyncio.Lock()

    async def prepare(self) -> ASGIApp:
        if self._app is None:
            async with self._making:
                if self._app is None:
                    self._app = await asyncio.to_thread(self._make)
        return self._app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app or await self.prepare()
        await app(scope, receive, send)
