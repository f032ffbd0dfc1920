"""Streams and terminals end soon after the credential that they were opened with."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

from starlette.requests import Request

from sandyard.kit.errors import UnavailableError
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.principal import Principal

_CHECK_EVERY_SEC = 5.0


async def until_revoked(guard: AccessGuard, principal: Principal) -> NoReturn:
    """Raises LoginRequiredError once the credential is no longer valid."""
    while True:
        await asyncio.sleep(_CHECK_EVERY_SEC)
        try:
            await guard.check(principal)
        except UnavailableError:  # unknown: try again
            continue


@asynccontextmanager
async def stream_end(
    request: Request, guard: AccessGuard, principal: Principal
) -> AsyncIterator[Callable[[], bool]]:
    """Yields whether a long answer has to end: by its credential, or because the server stops.
    Raises LoginRequiredError afterwards if it was the credential."""
    revoked = asyncio.create_task(until_revoked(guard, principal))
    try:
        yield lambda: bool(request.state.in_flight.draining) or revoked.done()
    finally:
        revoked.cancel()
        await asyncio.wait({revoked})
    if not revoked.cancelled():
        revoked.result()
