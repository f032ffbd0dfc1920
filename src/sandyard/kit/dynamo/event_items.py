"""Events as items of a DynamoDB table, and the table's definition."""

import zlib
from datetime import UTC, date, datetime
from typing import Any

import orjson

from sandyard.kit.changes.events import Event
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.dynamo.client import Dynamo
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.tables import Definition, table_definition
from sandyard.kit.dynamo.values import Item
from sandyard.kit.ids import EventIds

SHARDS = 8
TIME_INDEX = "TimeIndex"
ACTOR_INDEX = "ActorIndex"


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
        return self.table.put_action(self._item(event))

    def _item(self, event: Event) -> Item:
        written_ms = max(event.at_ms, int(self._clock.now() * 1000))
        bucket = f"{day_of(written_ms).isoformat()}#{shard_of(event.subject)}"
        return {
            "subject": event.subject,
            "sequence": event.sequence,
            "event_id": self._make_id(written_ms),
            "bucket": bucket,
            "actor_bucket": f"{event.actor}#{bucket}",
            "kind": event.kind,
            "actor": event.actor,
            "at_ms": event.at_ms,
            "reason": event.reason,
            "effect": event.effect.value,
            "data": orjson.dumps(event.data).decode(),
        }


def shard_of(subject: str) -> int:
    return zlib.crc32(subject.encode()) % SHARDS


def day_of(at_ms: int) -> date:
    return datetime.fromtimestamp(at_ms / 1000, UTC).date()
