"""The call for a preview's log, which can be followed."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from sandyard.kit.concurrency.streams import StreamLimit
from sandyard.kit.errors import SandyardError
from sandyard.kit.http.routes import GuardedRoutes, JsonResponse, caller_of
from sandyard.kit.http.schemas import Documented, eg
from sandyard.previews.service import Previews

_CHECK_SEC = 3.0
"""How often a stream's credential is checked again."""
_POLL_SEC = 0.2

Check = Callable[[Request], Awaitable[Any]]
Caller = Annotated[Any, Depends(caller_of)]


class PreviewLogAnswer(Documented):
    lines: Sequence[str] = eg(["VITE v6.4.1  ready in 312 ms"])


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "model": PreviewLogAnswer,
        "description": "The last lines; with `follow`, text that goes on",
        "content": {"text/plain": {"schema": {"type": "string"}, "example": "VITE v6.4.1\n"}},
    }
}


def add_log(routes: GuardedRoutes, previews: Previews, check: Check, streams: StreamLimit) -> None:
    @routes.get("/sandbox/logs", "Get a preview's log", response_class=Response, answers=_ANSWERS)
    async def get_preview_log(
        request: Request,
        caller: Caller,
        project_id: Annotated[str, Path(description="The id of one of your projects")],
        lines: Annotated[int, Query(ge=1, le=1000, description="How many of the last lines")] = 100,
        follow: Annotated[  # noqa: FBT002
            bool, Query(description="Stream new lines as text until the preview ends")
        ] = False,
    ) -> Response:
        """What the installation and the development server wrote; empty if it does not run. Also
        accepts an access token with the scope `status`."""
        account_id = caller.account_id
        if not follow:
            found = await previews.log(project_id, account_id=account_id, lines=lines)
            return JsonResponse(PreviewLogAnswer(lines=found).model_dump_json().encode())
        streams.check(account_id)
        written = await previews.follow_log(project_id, account_id=account_id, lines=lines)

        async def text() -> AsyncIterator[bytes]:
            with streams.opened(account_id):
                async for line in _while_allowed(written, request, check):
                    yield f"{line}\n".encode()

        return StreamingResponse(text(), media_type="text/plain")


async def _while_allowed(
    lines: AsyncIterator[str], request: Request, check: Check
) -> AsyncIterator[str]:
    """Ends when the credential is refused, or the server stops."""
    checked_at = time.monotonic()
    async with aclosing(lines):  # type: ignore[type-var]
        line = asyncio.ensure_future(anext(lines, None))
        try:
            while not request.state.in_flight.draining:
                await asyncio.wait({line}, timeout=_POLL_SEC)
                if time.monotonic() - checked_at >= _CHECK_SEC:
                    await check(request)
                    checked_at = time.monotonic()
                if line.done():
                    if (found := line.result()) is None:
                        return
                    yield found
                    line = asyncio.ensure_future(anext(lines, None))
        except SandyardError:  # refused, or away: whoever follows asks again
            return
        finally:
            line.cancel()
            await asyncio.wait({line})
