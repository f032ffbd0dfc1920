"""Notifies open pages by server-sent events which part has changed, without any data.

A notified page reloads its own view, by calls that check its access. Events are read once for all
pages of this process, and only while there are any. A page that connects or reconnects is notified
of changes since it was rendered or last notified. A stream ends soon after the session that opened
it, and its page is notified.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

from starlette.requests import Request
from starlette.responses import Response

from sandyard.kit.changes.events import EventListing, EventQuery, LoggedEvent
from sandyard.kit.errors import UnavailableError
from sandyard.kit.ids import first_event_id

logger = logging.getLogger("sandyard.console")

_INTERVAL_SEC = 1.0
_KEEP_ALIVE_SEC = 15.0
_CHECKED_EVERY_SEC = 60.0
"""For sessions that end without an event: expired ones, or after a change of an operator's
token."""
_APART_SEC = 2.0
"""The interval between two notifications of a page; changes meanwhile are combined."""
_READ = 50
"""The number of events read each time; the newest are enough to tell what changed."""
_OVERLAP_MS = 5000
"""Read this much earlier than requested, as clocks differ: at worst a page reloads
unnecessarily."""
_NOTIFIED_PER_SEC = 20
"""How many pages are notified each second, however many are open: each reloads its view."""
_FEW = 5
_GOLDEN = 0.618
_ENDS_LOGINS = frozenset(
    {
        *("account.deactivated", "account.deleted", "account.role_changed", "logins.ended"),
        *("password.changed", "password.reset"),
    }
)
_ViewKey = tuple[str, str, str]
_ENDED = b"event: ended\ndata: changed\n\n"
"""Makes the page reload, which redirects to the login."""


def pace_sec(open_pages: int, number: int) -> float:
    """The delay of a page's notification after a change. With few pages there is none; with many,
    each has a different one, so that they do not reload at the same time."""
    between = open_pages / _NOTIFIED_PER_SEC
    return 0 if between <= _INTERVAL_SEC else between * (0.5 + number * _GOLDEN % 1)


def gathering_sec(open_pages: int) -> float:
    """How long rendering a view is delayed, so that pages notified together share it."""
    return 0 if open_pages <= _FEW else _INTERVAL_SEC


@dataclass(frozen=True, slots=True)
class Listener:
    """The recipient of a stream, whether their session is still valid, and whether the server is
    stopping."""

    account_id: str | None
    operates: frozenset[str]
    is_valid: Callable[[], Awaitable[bool]]
    is_draining: Callable[[], bool]

    def may_see(self, event: LoggedEvent) -> bool:
        return event.part in self.operates or self.is_about(event)

    def is_about(self, event: LoggedEvent) -> bool:
        return self.account_id is not None and event.event.account_id == self.account_id


@dataclass(eq=False, slots=True)
class Subscriber:
    listener: Listener
    number: int
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    topics: set[str] = field(default_factory=set)
    is_doubted: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether its session may have ended, or the server is stopping."""
    checked_at: float = field(default_factory=time.monotonic)

    def notify(self, event: LoggedEvent) -> None:
        if self.listener.may_see(event):
            self.topics.add(event.part)
            self.changed.set()
        if self.listener.is_about(event) and event.event.kind in _ENDS_LOGINS:
            self._doubt()

    def notify_of_end(self) -> None:
        if self.listener.is_draining():
            self._doubt()

    def _doubt(self) -> None:
        self.is_doubted.set()
        self.changed.set()

    async def pause(self, seconds: float) -> None:
        """Ends early when `is_doubted` is set."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.is_doubted.wait()

    async def is_valid(self) -> bool:
        """Checks when in doubt, and periodically."""
        now = time.monotonic()
        if not self.is_doubted.is_set() and now - self.checked_at < _CHECKED_EVERY_SEC:
            return True
        self.is_doubted.clear()
        self.checked_at = now
        return await self.listener.is_valid()

    def take_topics(self) -> set[str]:
        topics, self.topics = self.topics, set()
        self.changed.clear()
        return topics


class LiveChanges:
    def __init__(self, logs: Sequence[EventListing]) -> None:
        self._logs = logs
        self._seen: set[str] = set()
        self._subscribers: set[Subscriber] = set()
        self._reader: asyncio.Task[None] | None = None
        self._numbers = count()

    @property
    def open_pages(self) -> int:
        return len(self._subscribers)

    async def stream(self, listener: Listener, *, since_ms: int) -> AsyncGenerator[bytes, None]:
        subscriber = Subscriber(listener, next(self._numbers))
        self._subscribers.add(subscriber)
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        try:
            yield b"retry: 2000\n" + _position()
            await self._catch_up(subscriber, since_ms)
            async for topics in self._changed_topics(subscriber):
                named = (f"event: {topic}\ndata: changed\n\n".encode() for topic in topics)
                yield b"".join(named) + _position()
            if not listener.is_draining():
                yield _ENDED
        finally:
            self._subscribers.discard(subscriber)

    async def _catch_up(self, subscriber: Subscriber, since_ms: int) -> None:
        first = first_event_id(since_ms - _OVERLAP_MS)
        for event in await self._newest():
            if event.event_id >= first:
                subscriber.notify(event)

    async def _read(self) -> None:
        """Runs until there are no subscribers."""
        try:
            self._seen = {each.event_id for each in await self._newest()}
            while self._subscribers:
                await asyncio.sleep(_INTERVAL_SEC)
                self._notify(await self._newest())
        finally:
            self._reader = None

    def _notify(self, events: Sequence[LoggedEvent]) -> None:
        new = [each for each in events if each.event_id not in self._seen]
        for subscriber in self._subscribers:
            subscriber.notify_of_end()
            for event in new:
                subscriber.notify(event)
        self._seen = {each.event_id for each in events} or self._seen

    async def _newest(self) -> list[LoggedEvent]:
        found: list[LoggedEvent] = []
        for log in self._logs:
            try:
                page = await log.page(EventQuery(), limit=_READ, cursor=None)
            except UnavailableError:  # pages reload when it is back
                logger.info("console: an event log is unavailable")
                continue
            except Exception:  # the pages of other parts, and later changes, are still notified
                logger.exception("console: an event log can't be read")
                continue
            found.extend(page.items)
        return found

    async def _changed_topics(self, subscriber: Subscriber) -> AsyncIterator[set[str]]:
        """Yields the changed topics; periodically an empty set, to keep connections through proxies
        open. Ends with the session or the server."""
        while True:
            try:
                async with asyncio.timeout(_KEEP_ALIVE_SEC):
                    await subscriber.changed.wait()
            except TimeoutError:
                pass
            else:
                await subscriber.pause(pace_sec(len(self._subscribers), subscriber.number))
            if subscriber.listener.is_draining() or not await subscriber.is_valid():
                return
            yield subscriber.take_topics()
            await subscriber.pause(_APART_SEC)


def _position() -> bytes:
    """The browser returns this as `Last-Event-ID` when it reconnects."""
    return b"id: %d\n\n" % (time.time() * 1000)


class SharedViews:
    """Views that are the same for every operator, rendered once for concurrent requests.

    When the pool changes, every open console reloads its view. Requests within a short time share
    one response. Rendering starts after all of them have arrived, so that none shows a state from
    before the change it was notified of, on whichever replica that was.
    """

    def __init__(self, wait_sec: Callable[[], float]) -> None:
        """`wait_sec` returns how long the first request waits for others."""
        self._wait_sec = wait_sec
        self._expected: dict[_ViewKey, asyncio.Task[Response]] = {}
        """Renderings that have not started."""

    async def drawn(self, request: Request, draw: Callable[[], Awaitable[Response]]) -> Response:
        key = (request.url.path, request.url.query, request.headers.get("hx-target", ""))
        if key not in self._expected:
            self._expected[key] = asyncio.create_task(self._draw(key, draw))
        shared = await asyncio.shield(self._expected[key])
        return Response(shared.body, shared.status_code, dict(shared.headers))

    async def _draw(self, key: _ViewKey, draw: Callable[[], Awaitable[Response]]) -> Response:
        await asyncio.sleep(self._wait_sec())
        del self._expected[key]
        return await draw()


def is_view(request: Request) -> bool:
    """Whether htmx reloads a part of a page."""
    return request.method == "GET" and "hx-request" in request.headers
