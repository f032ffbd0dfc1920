"""Removes old events from a DynamoDB table, except those that the state of a live subject needs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from sandyard.kit.changes.events import Event, Pruned
from sandyard.kit.dynamo.event_items import SHARDS, TIME_INDEX, day_of
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item

_KEPT = "kept-"
_KEPT_FOR = timedelta(days=30)
"""Old events that a live subject still needs move to the bucket `kept-DAY`, dated this much later,
and are checked again when pruning reaches that day."""
_MARK: Item = {"subject": "#pruned", "sequence": 0}
"""Stores where pruning continues; no subject id begins with `#`."""

Alive = Callable[[Sequence[str]], Awaitable[set[str]]]
"""Returns those of the subjects that exist."""
StateEvents = Callable[[Sequence[str]], Awaitable[Mapping[str, Sequence[Event]]]]


class EventPruning:
    def __init__(self, table: Table, alive: Alive, state_events: StateEvents) -> None:
        self._table = table
        self._alive = alive
        self._state_events = state_events

    async def prune(self, *, before_ms: int, after: str | None) -> Pruned:
        """One day at a time, starting where the last run ended."""
        day = await self._first_day() if after is None else date.fromisoformat(after)
        if day >= day_of(before_ms):
            return Pruned(0, None)
        removed = await self._prune_bucket(day.isoformat(), day)
        removed += await self._prune_bucket(f"{_KEPT}{day.isoformat()}", day)
        following = (day + timedelta(days=1)).isoformat()
        await self._table.put({**_MARK, "day": following})
        return Pruned(removed, following)

    async def _first_day(self) -> date:
        mark = await self._table.get(_MARK)
        if mark is not None:
            return date.fromisoformat(mark["day"])
        answer = await self._table.engine.call("DescribeTable", {"TableName": self._table.name})
        return datetime.fromtimestamp(answer["Table"]["CreationDateTime"], UTC).date()

    async def _prune_bucket(self, name: str, day: date) -> int:
        removed = 0
        kept = f"{_KEPT}{(day + _KEPT_FOR).isoformat()}"
        for shard in range(SHARDS):
            async for items in self._table.pages(
                index=TIME_INDEX,
                condition="#bucket = :bucket",
                values={"bucket": f"{name}#{shard}"},
            ):
                removed += await self._prune_items(items, f"{kept}#{shard}")
        return removed

    async def _prune_items(self, items: Sequence[Item], kept_bucket: str) -> int:
        subjects = sorted({item["subject"] for item in items})
        alive = sorted(await self._alive(subjects)) if subjects else []
        states = await self._state_events(alive)
        first_needed = {each: events[0].sequence for each, events in states.items() if events}
        removed = 0
        for item in items:
            key = {"subject": item["subject"], "sequence": item["sequence"]}
            needed_from = first_needed.get(item["subject"])
            if needed_from is not None and item["sequence"] >= needed_from:
                await self._table.update(key, "SET #bucket = :kept", {"kept": kept_bucket})
            else:
                await self._table.delete(key)
                removed += 1
        return removed
