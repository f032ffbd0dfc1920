"""Streams that end by themselves when their credential is refused, or the server stops."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TypeVar

from starlette.requests import Request

from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.principal import Principal

T = TypeVar("T")

_POLL_SEC = 0.2
_SILENCE_SEC = 15


@contextmanager
def stream_end(
    request: Request, guard: AccessGuard, principal: Principal
) -> Iterator[Callable[[], bool]]:
    """Yields whether a long answer has to end: by its credential, or because the server stops.
    Raises LoginRequiredError afterwards if it was the credential. Counts as one of the account's
    streams: TooManyStreamsError."""
    watch = request.state.access_watch
    with guard.streams.opened(principal.account_id):
        watch.leave_end()
        yield lambda: bool(request.state.in_flight.draining) or watch.refusal is not None
    if watch.refusal is not None:
        raise watch.refusal


async def until_over(
    items: AsyncIterator[T], is_over: Callable[[], bool]
) -> AsyncIterator[T | None]:
    """The items, and None now and then during a long silence. Ends when `is_over`, even if
    they do not."""
    async with aclosing(items):  # type: ignore[type-var]
        silent_sec = 0.0
        item = asyncio.ensure_future(anext(items, None))
        try:
            while not is_over():
                await asyncio.wait({item}, timeout=_POLL_SEC)
                if not item.done():
                    silent_sec += _POLL_SEC
                    if silent_sec >= _SILENCE_SEC:
                        silent_sec = 0.0
                        yield None
                    continue
                if (found := item.result()) is None:
                    return
                silent_sec = 0.0
                item = asyncio.ensure_future(anext(items, None))
                yield found
        finally:
            item.cancel()
            await asyncio.wait({item})
