"""Tells open pages what has changed, as server-sent events: the part's name, and nothing of it.

A page that hears of a change asks for its own view again, by calls that check who it is. Events are
read once for all pages of this process, and only while there are any. A page that begins to follow,
or does so again, is told of what happened since it was drawn or last heard of something.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from sandyard.kit.errors import UnavailableError
from sandyard.kit.events import EventListing, EventQuery, LoggedEvent
from sandyard.kit.ids import first_event_id

logger = logging.getLogger("sandyard.console")

_INTERVAL_SEC = 1.0
_KEEP_ALIVE_SEC = 15.0
_APART_SEC = 2.0
"""Between two things that a page is told; what happens meanwhile is told together."""
_READ = 50
"""Events that are looked at each time; of more, the newest are enough to tell what changed."""
_OVERLAP_MS = 5000
"""So much earlier than asked for, as clocks differ: at worst a page asks once too often."""
_TOLD_PER_SEC = 2
"""How many pages are told each second, however many are open: each asks for its view again."""
_GOLDEN = 0.618


def pace_sec(open_pages: int, number: int) -> float:
    """How long a page waits between hearing of a change and being told. A few are told at once; of
    many, each has a moment of its own, so that they don't ask for their views all together."""
    between = open_pages / _TOLD_PER_SEC
    return 0 if between <= _INTERVAL_SEC else between * (0.5 + number * _GOLDEN % 1)


@dataclass(eq=False, slots=True)
class Subscriber:
    account_id: str | None
    is_operator: bool
    number: int
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    topics: set[str] = field(default_factory=set)

    def tell(self, event: LoggedEvent) -> None:
        if self.may_hear(event):
            self.topics.add(event.part)
            self.changed.set()

    def may_hear(self, event: LoggedEvent) -> bool:
        return self.is_operator or (
            self.account_id is not None and event.event.account_id == self.account_id
        )


class LiveChanges:
    def __init__(self, logs: Sequence[EventListing]) -> None:
        self._logs = logs
        self._seen: set[str] = set()
        self._subscribers: set[Subscriber] = set()
        self._reader: asyncio.Task[None] | None = None
        self._numbers = count()

    async def stream(
        self,
        account_id: str | None,
        *,
        is_operator: bool,
        since_ms: int,
        is_draining: Callable[[], bool],
    ) -> AsyncGenerator[bytes, None]:
        subscriber = Subscriber(account_id, is_operator, next(self._numbers))
        self._subscribers.add(subscriber)
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        try:
            yield b"retry: 2000\n" + _position()
            await self._catch_up(subscriber, since_ms)
            async for topics in self._heard(subscriber, is_draining):
                named = (f"event: {topic}\ndata: changed\n\n".encode() for topic in topics)
                yield b"".join(named) + _position()
        finally:
            self._subscribers.discard(subscriber)

    async def _catch_up(self, subscriber: Subscriber, since_ms: int) -> None:
        first = first_event_id(since_ms - _OVERLAP_MS)
        for event in await self._newest():
            if event.event_id >= first:
                subscriber.tell(event)

    async def _read(self) -> None:
        """Until nobody listens any more."""
        self._seen = {each.event_id for each in await self._newest()}
        while self._subscribers:
            await asyncio.sleep(_INTERVAL_SEC)
            events = await self._newest()
            for event in events:
                if event.event_id not in self._seen:
                    self._tell(event)
            self._seen = {each.event_id for each in events} or self._seen
        self._reader = None

    async def _newest(self) -> list[LoggedEvent]:
        found: list[LoggedEvent] = []
        for log in self._logs:
            try:
                page = await log.page(EventQuery(), limit=_READ, cursor=None)
            except UnavailableError:  # pages ask again when it is back
                logger.info("console: an event log is away")
                continue
            found.extend(page.items)
        return found

    def _tell(self, event: LoggedEvent) -> None:
        for subscriber in self._subscribers:
            subscriber.tell(event)

    async def _heard(
        self, subscriber: Subscriber, is_draining: Callable[[], bool]
    ) -> AsyncIterator[set[str]]:
        """What changed, once there is something; nothing, now and then, so that proxies stay
        open."""
        waited = 0.0
        while not is_draining():
            try:
                async with asyncio.timeout(_INTERVAL_SEC):
                    await subscriber.changed.wait()
            except TimeoutError:
                waited += _INTERVAL_SEC
                if waited < _KEEP_ALIVE_SEC:
                    continue
            else:
                await _pause(pace_sec(len(self._subscribers), subscriber.number), is_draining)
            topics, subscriber.topics, waited = subscriber.topics, set(), 0.0
            subscriber.changed.clear()
            yield topics
            await _pause(_APART_SEC, is_draining)


def _position() -> bytes:
    """What a browser sends back as `Last-Event-ID` when it connects again."""
    return b"id: %d\n\n" % (time.time() * 1000)


async def _pause(seconds: float, is_draining: Callable[[], bool]) -> None:
    while seconds > 0 and not is_draining():
        await asyncio.sleep(min(seconds, _INTERVAL_SEC))
        seconds -= _INTERVAL_SEC
