"""Views that are the same for every operator, rendered once for concurrent requests.

When the pool changes, every open console asks for its view again. Those who ask within a moment get
one answer. Its drawing begins after all of them have asked, so that none is shown a state from
before the change that it was told of, on whichever replica that was.
"""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

Draw = Callable[[], Awaitable[Response]]
Key = tuple[str, str, str]


class SharedViews:
    def __init__(self, wait_sec: Callable[[], float]) -> None:
        """`wait_sec` tells how long whoever asks first waits for others."""
        self._wait_sec = wait_sec
        self._expected: dict[Key, asyncio.Task[Response]] = {}
        """Drawings that have not begun."""

    async def drawn(self, request: Request, draw: Draw) -> Response:
        key = (request.url.path, request.url.query, request.headers.get("hx-target", ""))
        if key not in self._expected:
            self._expected[key] = asyncio.create_task(self._draw(key, draw))
        shared = await asyncio.shield(self._expected[key])
        return Response(shared.body, shared.status_code, dict(shared.headers))

    async def _draw(self, key: Key, draw: Draw) -> Response:
        await asyncio.sleep(self._wait_sec())
        del self._expected[key]
        return await draw()


def is_view(request: Request) -> bool:
    """Whether htmx asks for a part of a page again."""
    return request.method == "GET" and "hx-request" in request.headers
