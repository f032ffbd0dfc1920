"""A part's event log in a separate DynamoDB table: one more item in each transaction.

The key is (subject, sequence), so a subject's history is one strongly consistent query. `TimeIndex`
orders the events by time; each of its partitions holds one day's events of one shard, to spread
writes and queries. `ActorIndex` does the same for each actor. Both are eventually consistent.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sandyard.kit.changes.event_kinds import ANY_KIND
from sandyard.kit.changes.events import SETTLED_MS, Effect, Event, EventQuery, LoggedEvent, Pruned
from sandyard.kit.clock import Clock
from sandyard.kit.dynamo.event_items import (
    ACTOR_INDEX,
    SHARDS,
    TIME_INDEX,
    Alive,
    EventItems,
    EventPruning,
    day_of,
    event_item,
    written_day,
)
from sandyard.kit.dynamo.values import Item
from sandyard.kit.ids import first_event_id
from sandyard.kit.paging import Page, encode_cursor, position_in
from sandyard.kit.wired import wired

_LEAST_READ = 100
_PAGE = 200
_MOST_READ = 5_000
_MOST_DAYS = 10
"""A page of events of any subject ends after reading this many events, or this many days."""
_PARALLEL = 32
_BATCH = 500
_LAST = "g"
"""Sorts after every event id, as ids are hexadecimal."""


@wired
class DynamoEventLog:
    items: EventItems
    part: str
    alive: Alive
    clock: Clock
    retention: timedelta

    def __post_init__(self) -> None:
        self._table = self.items.table
        self._pruning = EventPruning(self.items.table, self.alive, self.state_events)

    async def page(self, query: EventQuery, *, limit: int, cursor: str | None) -> Page[LoggedEvent]:
        """May return a short or empty page where few of many events match; the cursor continues."""
        listing = f"events {self.part} {query}"
        # A subject's events are ordered by sequence, all others by id.
        last = position_in(listing, cursor, str if query.subject is None else int)
        position = None if last is None else last[0]
        found: list[Item]
        rest: int | str | None
        if query.subject is not None:
            found, rest = await self._page_by_subject(query, query.subject, position, limit)
        else:
            found, rest = await self._page_by_time(query, _before(query, position), limit)
        return Page(
            [self._logged(item) for item in found],
            None if rest is None else encode_cursor(listing, [rest]),
        )

    async def _page_by_subject(
        self, query: EventQuery, subject: str, position: int | None, limit: int
    ) -> tuple[list[Item], int | None]:
        """In order of its changes; strongly consistent."""
        values = _filter_values(query) | {"subject": subject, "position": position}
        found = await self._up_to(
            limit + 1,
            condition="#subject = :subject"
            + ("" if position is None else " AND #sequence < :position"),
            values=values,
            where=_where(values),
            forward=False,
        )
        return found[:limit], found[limit - 1]["sequence"] if len(found) > limit else None

    async def _up_to(self, number: int, **query: Any) -> list[Item]:
        found: list[Item] = []
        async for items in self._table.pages(**query, limit=max(number + 1, _LEAST_READ)):
            found += items
            if len(found) >= number:
                break
        return found

    async def _page_by_time(
        self, query: EventQuery, before: str, limit: int
    ) -> tuple[list[Item], str | None]:
        now_ms = int(self.clock.now() * 1000)
        from_ms = query.from_ms or now_ms - int(self.retention.total_seconds() * 1000)
        first = first_event_id(from_ms)
        if first >= before:
            return [], None
        last_ms = min(now_ms + SETTLED_MS, int(before[:12], 16) if before != _LAST else now_ms * 2)
        found: list[Item] = []
        for day in _days(day_of(last_ms), day_of(from_ms)):
            items, read_to = await self._of_day(
                day, first, before, limit + 1, kind=query.kind, actor=query.actor, forward=False
            )
            found += items
            if len(found) > limit:
                return found[:limit], found[limit - 1]["event_id"]
            if read_to is not None:
                return found, read_to
            if (day_of(last_ms) - day).days >= _MOST_DAYS and day > day_of(from_ms):
                midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
                return found, first_event_id(int(midnight.timestamp()) * 1000)
        return found, None

    async def state_events(self, subjects: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        slots = asyncio.Semaphore(_PARALLEL)

        async def read(subject: str) -> Sequence[Event]:
            async with slots:
                return await self._state_events(subject)

        found = await asyncio.gather(*(read(each) for each in subjects))
        return {each: events for each, events in zip(subjects, found, strict=True) if events}

    async def _state_events(self, subject: str) -> Sequence[Event]:
        """From the newest back to the last full state."""
        found: list[Event] = []
        async for items in self._table.pages(
            condition="#subject = :subject", values={"subject": subject}, forward=False
        ):
            for item in items:
                found.append(Event.of_stored(item))
                if item["effect"] == Effect.FULL:
                    return found[::-1]
        return found[::-1]

    async def gone(self) -> AsyncIterator[Sequence[str]]:
        last: str | None = None
        async for items in self._table.scan():  # a scan returns a subject's events together
            found = dict.fromkeys(item["subject"] for item in items)
            subjects = [each for each in found if each != last and not each.startswith("#")]
            last = next(reversed(found), last)
            alive = await self.alive(subjects) if subjects else set()
            yield [each for each in subjects if each not in alive]

    async def between(self, *, from_ms: int, to_ms: int) -> AsyncIterator[Sequence[LoggedEvent]]:
        first, end = first_event_id(from_ms), first_event_id(to_ms)
        if first >= end:
            return
        for day in _days(day_of(from_ms), day_of(to_ms - 1)):
            after = first
            while True:
                items, _ = await self._of_day(day, after, end, _BATCH, forward=True)
                if items:
                    yield [self._logged(item) for item in items]
                if len(items) < _BATCH:
                    break
                after = items[-1]["event_id"]

    async def count(self, kind: str, *, from_ms: int, to_ms: int) -> int:
        first, end = first_event_id(from_ms), first_event_id(to_ms)
        buckets = [
            f"{day}#{shard}"
            for day in _days(day_of(from_ms), day_of(to_ms - 1))
            for shard in range(SHARDS)
        ]
        counts = [self._count_of_shard(each, kind, first, end) for each in buckets]
        return sum(await asyncio.gather(*counts))

    async def _count_of_shard(self, bucket: str, kind: str, first: str, end: str) -> int:
        """Reads only events written in that period."""
        return await self._table.count(
            index=TIME_INDEX,
            condition="#bucket = :bucket AND event_id BETWEEN :first AND :end",
            values={"bucket": bucket, "first": first, "end": end, "kind": kind},
            where="#kind = :kind",
        )

    async def read_after(
        self, position: str | None, *, limit: int
    ) -> tuple[Sequence[LoggedEvent], str | None]:
        """Reads only settled events, so that none can appear before a position later. Ids are based
        on the replicas' clocks: a subject's events are in order as far as those clocks agree."""
        now_ms = int(self.clock.now() * 1000)
        settled = now_ms - SETTLED_MS
        after = position or first_event_id(now_ms - int(self.retention.total_seconds() * 1000))
        found: list[LoggedEvent] = []
        async for events in self.between(from_ms=int(after[:12], 16), to_ms=settled):
            found += [each for each in events if each.event_id > after]
            if len(found) >= limit:
                break
        if len(found) < limit:
            return found, max(after, first_event_id(settled))
        return found[:limit], found[limit - 1].event_id

    async def position_before(self, at_ms: int) -> str | None:
        return first_event_id(at_ms - SETTLED_MS)

    async def everything(self) -> AsyncIterator[Sequence[LoggedEvent]]:
        async for items in self._table.scan():
            yield [self._logged(item) for item in items if not item["subject"].startswith("#")]

    async def restore(self, events: Sequence[LoggedEvent]) -> None:
        await self._table.put_all([event_item(each.event_id, each.event) for each in events])
        if events:
            first = min(each.event_id for each in events)
            await self._pruning.begin_at(written_day(first))

    async def finish_restore(self) -> None:
        """Nothing to do: indexes order the events."""

    async def first_id_after(self, position: str) -> str | None:
        return f"{position}0"

    async def position_at(self, event_id: str | None) -> str | None:
        if event_id is not None:
            return event_id[:-1]
        newest = await self.page(EventQuery(), limit=1, cursor=None)
        return newest.items[0].event_id if newest.items else None

    async def prune(self, *, before_ms: int, after: str | None) -> Pruned:
        return await self._pruning.prune(before_ms=before_ms, after=after)

    async def _of_day(
        self, day: date, first: str, before: str, limit: int, **options: Any
    ) -> tuple[list[Item], str | None]:
        """Up to `limit` events between the two ids, merged from all shards in order; and the id
        that reading reached, if it stopped before the end of the day."""
        shards = await asyncio.gather(
            *(
                self._of_shard(f"{day}#{shard}", first, before, limit, **options)
                for shard in range(SHARDS)
            )
        )
        read_to = max((each for _, each in shards if each is not None), default=None)
        found = sorted(
            (item for items, _ in shards for item in items),
            key=lambda item: str(item["event_id"]),
            reverse=not options["forward"],
        )
        if read_to is not None:
            found = [item for item in found if item["event_id"] >= read_to]
        return found[:limit], read_to

    async def _of_shard(
        self,
        shard: str,
        first: str,
        before: str,
        limit: int,
        *,
        forward: bool,
        kind: str | None = None,
        actor: str | None = None,
    ) -> tuple[list[Item], str | None]:
        """The events found, and where reading stopped if too many were read for too few matches;
        this happens only with a `kind`, and backwards."""
        index, key = (TIME_INDEX, "#bucket") if actor is None else (ACTOR_INDEX, "actor_bucket")
        bucket = shard if actor is None else f"{actor}#{shard}"
        values = {"bucket": bucket, "first": first, "before": before, **_kind_value(kind)}
        found: list[Item] = []
        start: Item | None = None
        while True:
            for _ in range(_MOST_READ // SHARDS // _PAGE):
                items, start, _count = await self._table.query(
                    index=index,
                    condition=f"{key} = :bucket AND event_id BETWEEN :first AND :before",
                    values=values,
                    where=_where(_kind_value(kind)),
                    forward=forward,
                    limit=_PAGE if kind is not None else limit + 2,
                    start=start,
                )
                found += [item for item in items if first < item["event_id"] < before]
                if len(found) >= limit or start is None:
                    return found, None
            if kind is not None and not forward and start is not None:
                return found, str(start["event_id"])

    def _logged(self, item: Item) -> LoggedEvent:
        return LoggedEvent(item["event_id"], self.part, Event.of_stored(item))


def _before(query: EventQuery, position: str | None) -> str:
    end = _LAST if query.to_ms is None else first_event_id(query.to_ms)
    return end if position is None else min(end, position)


_FILTERS = {
    "kind": "#kind = :kind",
    "kind_prefix": "begins_with(#kind, :kind_prefix)",
    "actor": "#actor = :actor",
    "from": "event_id > :from",
    "to": "event_id < :to",
}


def _filter_values(query: EventQuery) -> Item:
    return {
        **_kind_value(query.kind),
        "actor": query.actor,
        "from": None if query.from_ms is None else first_event_id(query.from_ms),
        "to": None if query.to_ms is None else first_event_id(query.to_ms),
    }


def _kind_value(kind: str | None) -> Item:
    if kind is None or not kind.endswith(ANY_KIND):
        return {"kind": kind}
    return {"kind_prefix": kind.removesuffix(ANY_KIND)}


def _where(values: Item) -> str | None:
    used = [_FILTERS[name] for name in _FILTERS if values.get(name) is not None]
    return " AND ".join(used) or None


def _days(first: date, last: date) -> list[date]:
    """From `first` to `last` inclusive, in either direction."""
    step = 1 if last >= first else -1
    return [first + timedelta(days=step * n) for n in range(abs((last - first).days) + 1)]
