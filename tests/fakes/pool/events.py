"""A log of events in memory."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from sandyard.kit.changes.event_kinds import ANY_KIND
from sandyard.kit.changes.events import (
    SETTLED_MS,
    Effect,
    Event,
    EventQuery,
    LoggedEvent,
    Pruned,
)
from sandyard.kit.ids import EventIds, first_event_id
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor

PART = "broker"
T = TypeVar("T")


@dataclass(slots=True)
class MemoryEvents:
    log: list[LoggedEvent] = field(default_factory=list)
    """In the order of writing."""
    of_subject: dict[str, list[LoggedEvent]] = field(default_factory=lambda: defaultdict(list))
    make_id: EventIds = field(default_factory=EventIds)

    def append(self, events: Sequence[Event], now: float) -> None:
        for each in events:
            self.add(LoggedEvent(self.make_id(max(each.at_ms, int(now * 1000))), PART, each))

    def add(self, logged: LoggedEvent) -> None:
        self.log.append(logged)
        self.of_subject[logged.event.subject].append(logged)

    def last_state(self, subject: str) -> list[LoggedEvent]:
        """The events since its last full state."""
        found: list[LoggedEvent] = []
        for each in self.of_subject.get(subject, ()):
            if each.event.effect is Effect.FULL:
                found.clear()
            if each.event.effect is not Effect.NONE:
                found.append(each)
        return found


class Call(Protocol):
    """Lets the engine do something, at once or behind a network."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


class MemoryEventLog:
    """The port to it; `alive` gives the subjects that exist."""

    part = PART

    def __init__(
        self,
        events: MemoryEvents,
        call: Call,
        alive: Callable[[], set[str]],
    ) -> None:
        self._events = events
        self._call = call
        self._alive = alive

    async def page(self, query: EventQuery, *, limit: int, cursor: str | None) -> Page[LoggedEvent]:
        listing = f"events {query}"
        position = None if cursor is None else decode_cursor(listing, cursor)
        if position is not None and (len(position) != 1 or type(position[0]) is not int):
            raise InvalidCursorError
        found = await self._call(lambda: self._newest(query))
        start = 0 if position is None else position[0]
        end = start + limit
        return Page(found[start:end], encode_cursor(listing, [end]) if end < len(found) else None)

    def _newest(self, query: EventQuery) -> list[LoggedEvent]:
        if query.subject is not None:
            return [
                e
                for e in reversed(self._events.of_subject.get(query.subject, []))
                if _matches(e, query)
            ]
        found = [each for each in self._events.log if _matches(each, query)]
        return sorted(found, key=_id_of, reverse=True)

    async def state_events(self, subjects: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        def work() -> Mapping[str, Sequence[Event]]:
            states = {each: self._events.last_state(each) for each in subjects}
            return defaultdict(list, {s: [e.event for e in found] for s, found in states.items()})

        return await self._call(work)

    async def gone(self) -> AsyncIterator[Sequence[str]]:
        yield await self._call(lambda: sorted(self._events.of_subject.keys() - self._alive()))

    async def between(self, *, from_ms: int, to_ms: int) -> AsyncIterator[Sequence[LoggedEvent]]:
        query = EventQuery(from_ms=from_ms, to_ms=to_ms)
        yield list(reversed(await self._call(lambda: self._newest(query))))

    async def count(self, kind: str, *, from_ms: int, to_ms: int) -> int:
        query = EventQuery(kind=kind, from_ms=from_ms, to_ms=to_ms)
        return len(await self._call(lambda: self._newest(query)))

    async def read_after(
        self, position: str | None, *, limit: int
    ) -> tuple[Sequence[LoggedEvent], str | None]:
        start = int(position or 0)
        found = await self._call(lambda: self._events.log[start : start + limit])
        return found, str(start + len(found)) if found else position

    async def position_before(self, at_ms: int) -> str | None:
        first = first_event_id(at_ms - SETTLED_MS)
        log = await self._call(lambda: list(self._events.log))
        older = [number for number, each in enumerate(log, 1) if each.event_id < first]
        return str(max(older)) if older else None

    async def prune(self, *, before_ms: int, after: str | None) -> Pruned:  # noqa: ARG002 - one batch
        return Pruned(await self._call(lambda: self._prune(first_event_id(before_ms))), None)

    def _prune(self, before: str) -> int:
        events, alive = self._events, self._alive()
        needed = {e.event_id for each in alive for e in events.last_state(each)}
        kept = [e for e in events.log if e.event_id >= before or e.event_id in needed]
        removed = len(events.log) - len(kept)
        events.log.clear()
        events.of_subject.clear()
        for each in kept:
            events.add(each)
        return removed


def _id_of(logged: LoggedEvent) -> str:
    return logged.event_id


def _matches(logged: LoggedEvent, query: EventQuery) -> bool:
    event = logged.event
    kind = query.kind
    return (
        query.actor in (None, event.actor)
        and query.account_id in (None, event.account_id)
        and (
            kind is None
            or kind == event.kind
            or (kind.endswith(ANY_KIND) and event.kind.startswith(kind.removesuffix(ANY_KIND)))
        )
        and (query.from_ms is None or logged.event_id > first_event_id(query.from_ms))
        and (query.to_ms is None or logged.event_id < first_event_id(query.to_ms))
    )
