"""Request helpers for all endpoints: headers, empty bodies, disconnects."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from starlette.requests import Request

from sandyard.kit.errors import InvalidError

RawHeaders = Sequence[tuple[bytes, bytes]]
"""Headers as the server provides them: lower-case names, repeated headers repeated."""


def values_of(headers: RawHeaders, name: bytes) -> list[bytes]:
    return [value for header, value in headers if header == name]


async def refuse_body(request: Request) -> None:
    """For important calls without a body: a body could contain a `dry_run` that would be
    ignored."""
    if await request.body():
        raise InvalidError("Send no body: this call takes query parameters. Nothing was changed.")


@asynccontextmanager
async def noticing_disconnect(request: Request, leave: Callable[[], None]) -> AsyncIterator[None]:
    """Calls `leave` if the client disconnects during the block. The request body is lost."""

    async def notice() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        leave()

    noticing = asyncio.create_task(notice())
    try:
        yield
    finally:
        noticing.cancel()
        await asyncio.gather(noticing, return_exceptions=True)
