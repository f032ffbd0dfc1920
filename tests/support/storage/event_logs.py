"""An event log on any engine, a way to write to it, and events to write."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa

from sandyard.broker.stores.tables import events, sandboxes
from sandyard.kit.changes.events import Effect, Event, EventLog
from sandyard.kit.clock import SystemClock
from sandyard.kit.dynamo.event_items import EventItems
from sandyard.kit.dynamo.events import DynamoEventLog
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.events import EventWriter, SqlEventLog
from tests.support.clocks import ManualClock

DAY_MS = 24 * 3600 * 1000
FIRST_DAY_MS = (int(SystemClock().now()) // 86400 + 1) * DAY_MS
"""Tomorrow: a table on DynamoDB has no events from before the day it was made, which is a day later
than the tests began if they run past midnight."""


def event(
    subject: str,
    sequence: int,
    *,
    kind: str = "thing.changed",
    actor: str = "operator",
    at_ms: int = FIRST_DAY_MS,
    effect: Effect = Effect.PARTIAL,
) -> Event:
    data = {"size": sequence} if effect is not Effect.FULL else {"size": sequence, "name": subject}
    return Event(kind, subject, sequence, actor, at_ms, effect, data, reason=f"no. {sequence}")


@dataclass(slots=True)
class Bench:
    """A log, a way to write to it, and which of its subjects are alive."""

    log: EventLog
    write: Callable[[list[Event]], Awaitable[None]]
    set_alive: Callable[[set[str]], Awaitable[None]]
    clock: ManualClock
    writer_clock: ManualClock
    """Before all events, so that each is written at its own time, unless a test moves it."""


def bench_on_sql(database: Database, clock: ManualClock) -> Bench:
    writer_clock = ManualClock(0)
    writer = EventWriter(events, writer_clock)

    async def write(new: list[Event]) -> None:
        await database.write(lambda connection: writer.write(connection, new))

    async def set_alive(subjects: set[str]) -> None:
        row = {
            "external_id": "e",
            "status": "available",
            "lab_duration_hours": 1,
            "allocated_at": 0,
            "deletion_retry_count": 0,
            "created_at": 0,
            "updated_at": 0,
            "sequence": 1,
        }
        rows = [row | {"sandbox_id": each, "name": each} for each in subjects]

        def work(connection: sa.Connection) -> None:
            connection.execute(sandboxes.delete())
            if rows:
                connection.execute(sandboxes.insert(), rows)

        await database.write(work)

    log = SqlEventLog(database, events, part="broker", subjects=[sandboxes.c.sandbox_id])
    return Bench(log, write, set_alive, clock, writer_clock)


def bench_on_dynamo(items: EventItems, clock: ManualClock, writer_clock: ManualClock) -> Bench:
    living: set[str] = set()

    async def write(new: list[Event]) -> None:
        actions = [items.put_action(each) for each in new]
        for start in range(0, len(actions), 100):
            await items.table.transact(*actions[start : start + 100])

    async def set_alive(subjects: set[str]) -> None:
        living.clear()
        living.update(subjects)

    async def alive(subjects: object) -> set[str]:
        assert isinstance(subjects, list)
        return living & set(subjects)

    log = DynamoEventLog(
        items, part="broker", alive=alive, clock=clock, retention=timedelta(days=90)
    )
    return Bench(log, write, set_alive, clock, writer_clock)
