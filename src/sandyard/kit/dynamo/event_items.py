"""Events as items of a DynamoDB table: its definition, writing events, and removing old ones."""

import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

import orjson

from sandyard.kit.changes.events import Event, Pruned
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.dynamo.client import ConditionFailedError, Dynamo, TransactionRefusedError
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.tables import Definition, table_definition
from sandyard.kit.dynamo.values import Item
from sandyard.kit.ids import EventIds

SHARDS = 8
TIME_INDEX = "TimeIndex"
ACTOR_INDEX = "ActorIndex"
_KEPT = "kept-"
_KEPT_FOR = timedelta(days=30)
"""Old events that a live subject still needs move to the bucket `kept-DAY`, dated this much later,
and are checked again when pruning reaches that day."""
_MARK: Item = {"subject": "#pruned", "sequence": 0}
"""Stores where pruning continues; no subject id begins with `#`."""

Alive = Callable[[Sequence[str]], Awaitable[set[str]]]
"""Returns those of the subjects that exist."""
StateEvents = Callable[[Sequence[str]], Awaitable[Mapping[str, Sequence[Event]]]]


def event_table_definition(name: str) -> Definition:
    return table_definition(
        name,
        ("subject", "sequence"),
        {TIME_INDEX: ("bucket", "event_id"), ACTOR_INDEX: ("actor_bucket", "event_id")},
        numbers=["sequence"],
    )


def job_key(job: str) -> Item:
    """The key of a job's lease, for parts without a more suitable table."""
    return {"subject": f"#job {job}", "sequence": 0}


class EventItems:
    """Events as actions of the transactions they belong to.

    Id and bucket are generated with the action, which is sent at once. With the time of the
    decision, which may be older, an event could be inserted behind the position of log readers.
    """

    def __init__(self, engine: Dynamo, name: str, clock: Clock | None = None) -> None:
        self.table = Table(engine, name)
        self._clock = clock or SystemClock()
        self._make_id = EventIds()

    def put_action(self, event: Event) -> dict[str, Any]:
        """Refused if it is there, which is told by `were_written`."""
        return self.table.put_action(self._item(event), condition="attribute_not_exists(#subject)")

    def _item(self, event: Event) -> Item:
        written_ms = max(event.at_ms, int(self._clock.now() * 1000))
        return event_item(self._make_id(written_ms), event)


def were_written(actions: Sequence[Mapping[str, Any]], refused: TransactionRefusedError) -> bool:
    """Whether one of these events is there: then the transaction, whose response was lost, was
    carried out, whatever has become of its items since."""
    event_ids = {each["Put"]["Item"]["event_id"]["S"] for each in actions}
    return any(each.item and each.item.get("event_id") in event_ids for each in refused.reasons)


def event_item(event_id: str, event: Event) -> Item:
    bucket = f"{written_day(event_id).isoformat()}#{shard_of(event.subject)}"
    return {
        "subject": event.subject,
        "sequence": event.sequence,
        "event_id": event_id,
        "bucket": bucket,
        "actor_bucket": f"{event.actor}#{bucket}",
        "kind": event.kind,
        "actor": event.actor,
        "at_ms": event.at_ms,
        "reason": event.reason,
        "effect": event.effect.value,
        "data": orjson.dumps(event.data).decode(),
    }


def written_day(event_id: str) -> date:
    return day_of(int(event_id[:12], 16))


def shard_of(subject: str) -> int:
    return zlib.crc32(subject.encode()) % SHARDS


def day_of(at_ms: int) -> date:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date()


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

    async def begin_at(self, day: date) -> None:
        """There are events of this day: the next run starts there, unless it starts earlier."""
        with suppress(ConditionFailedError):
            await self._table.update(
                _MARK,
                "SET #day = :day",
                {"day": day.isoformat()},
                condition="attribute_not_exists(#day) OR #day > :day",
            )

    async def _first_day(self) -> date:
        mark = await self._table.get(_MARK)
        if mark is not None:
            return date.fromisoformat(mark["day"])
        answer = await self._table.engine.call("DescribeTable", {"TableName": self._table.name})
        return datetime.fromtimestamp(answer["Table"]["CreationDateTime"], UTC).date()

    async def _prune_bucket(self, name: str, day: date) -> int:
        removed = 0
        later = f"{_KEPT}{(day + _KEPT_FOR).isoformat()}"
        for shard in range(SHARDS):
            async for items in self._table.pages(
                index=TIME_INDEX,
                condition="#bucket = :bucket",
                values={"bucket": f"{name}#{shard}"},
            ):
                removed += await self._prune_items(items, f"{later}#{shard}")
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
