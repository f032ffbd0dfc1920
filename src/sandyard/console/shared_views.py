"""Views that are the same for every operator, rendered once for concurrent requests.

When the pool changes, every open console reloads its view. Requests within a short time share one
response. Rendering starts after all of them have arrived, so that none shows a state from before
the change it was notified of, on whichever replica that was.
"""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

Draw = Callable[[], Awaitable[Response]]
Key = tuple[str, str, str]


class SharedViews:
    def __init__(self, wait_sec: Callable[[], float]) -> None:
        """`wait_sec` returns how long the first request waits for others."""
        self._wait_sec = wait_sec
        self._expected: dict[Key, asyncio.Task[Response]] = {}
        """Renderings that have not started."""

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
    """Whether htmx reloads a part of a page."""
    return request.method == "GET" and "hx-request" in request.headers
