"""A part's event log in a SQL table, written in the transactions of the changes.

`position` numbers the events as they are inserted. The subject's row is locked while its event is
inserted, so the positions of one subject's events are in the order of its changes. On PostgreSQL
`xid` is the transaction id; a reader may move past an event once every transaction with a smaller
id has ended. `event_id` is generated at insertion.
"""

import heapq
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

import orjson
import sqlalchemy as sa

from sandyard.kit.changes.event_kinds import ANY_KIND
from sandyard.kit.changes.events import SETTLED_MS, Effect, Event, EventQuery, LoggedEvent, Pruned
from sandyard.kit.clock import Clock, SystemClock
from sandyard.kit.ids import EventIds, first_event_id, subject_key
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor
from sandyard.kit.sql.batches import BatchInsert
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.keyset import batches
from sandyard.kit.wired import wired

_BATCH = 1000
_OF_ENGINE = ("position", "xid")
"""The columns that the engine fills."""


class EventWriter:
    """Appends events inside the caller's transaction."""

    def __init__(self, table: sa.Table, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._make_id = EventIds()
        written = [each.name for each in table.c if each.name not in _OF_ENGINE]
        self.insert = BatchInsert(table, written)
        """For `rows`, by callers that insert them together with other rows."""

    def write(self, connection: sa.Connection, events: Sequence[Event]) -> None:
        """Call this at the end of a transaction, so that the events are committed soon after."""
        for start in range(0, len(events), _BATCH):
            self.insert.execute(connection, self.rows(events[start : start + _BATCH]))

    def rows(self, events: Sequence[Event]) -> list[tuple[Any, ...]]:
        """Call this just before the insert: the ids contain the time."""
        now_ms = int(self._clock.now() * 1000)
        return [_row(self._make_id(max(each.at_ms, now_ms)), each) for each in events]


def _row(event_id: str, event: Event) -> tuple[Any, ...]:
    return (
        event_id,
        event.subject,
        subject_key(event.subject),
        event.sequence,
        event.kind,
        event.actor,
        event.account_id,
        event.at_ms,
        event.reason,
        event.effect.value,
        orjson.dumps(event.data).decode(),
    )


@wired
class SqlEventLog:
    """`subjects` are the columns with the ids of live subjects."""

    database: Database
    table: sa.Table
    part: str
    subjects: Sequence[sa.Column[Any]]

    async def page(self, query: EventQuery, *, limit: int, cursor: str | None) -> Page[LoggedEvent]:
        listing = f"events {self.part} {query}"
        return await _merged_page([self], listing, query, limit=limit, cursor=cursor)

    async def newest(
        self, query: EventQuery, limit: int, *, before: Any
    ) -> Sequence[tuple[str | int, LoggedEvent]]:
        """The newest events with their keys, starting at key `before` if given. A subject's events
        are in the order of its changes, all others in order of id. InvalidCursorError if the key
        does not fit this log."""
        order = self.table.c["event_id" if query.subject is None else "position"]
        statement = sa.select(self.table).where(*self._matching(query))
        if before is not None:
            if type(before) is not order.type.python_type:
                raise InvalidCursorError
            statement = statement.where(order < before)
        rows = await self._rows(statement.order_by(order.desc()).limit(limit))
        return [(getattr(row, order.name), self._logged(row)) for row in rows]

    async def state_events(self, subjects: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        column = self.table.c
        statement = (
            sa.select(self.table)
            .where(
                column.subject_key.in_([subject_key(each) for each in subjects]),
                column.subject.in_(subjects),
                column.effect != Effect.NONE,
            )
            .order_by(column.subject, column.position)
        )
        found: dict[str, list[Event]] = defaultdict(list)
        for row in await self._rows(statement):
            if row.effect == Effect.FULL:
                found[row.subject].clear()
            found[row.subject].append(self._logged(row).event)
        return found

    async def gone(self) -> AsyncIterator[Sequence[str]]:
        key = (self.table.c.subject_key, self.table.c.subject)
        statement = sa.select(*key).distinct().where(sa.not_(self._is_alive()))
        async for rows in batches(self.database, statement, *key, limit=_BATCH):
            yield [row.subject for row in rows]

    async def between(self, *, from_ms: int, to_ms: int) -> AsyncIterator[Sequence[LoggedEvent]]:
        event_id, first = self.table.c.event_id, first_event_id(from_ms)
        statement = sa.select(self.table).where(event_id < first_event_id(to_ms))
        async for rows in batches(self.database, statement, event_id, limit=_BATCH, after=[first]):
            yield [self._logged(row) for row in rows]

    async def count(self, kind: str, *, from_ms: int, to_ms: int) -> int:
        query = EventQuery(kind=kind, from_ms=from_ms, to_ms=to_ms)
        statement = sa.select(sa.func.count()).where(*self._matching(query))
        return int((await self._rows(statement))[0][0])

    async def read_after(
        self, position: str | None, *, limit: int
    ) -> tuple[Sequence[LoggedEvent], str | None]:
        xid, last = (int(each) for each in (position or "0.0").split("."))
        rows = await self.database.read(
            lambda connection: connection.execute(self._next(connection, xid, last, limit)).all()
        )
        if not rows:
            return [], position
        return [self._logged(row) for row in rows], f"{rows[-1].xid or 0}.{rows[-1].position}"

    async def position_before(self, at_ms: int) -> str | None:
        """The position of the last event that had settled by then: transactions of later ones began
        after it."""
        column = self.table.c
        statement = (
            sa.select(column.xid, column.position)
            .where(column.event_id < first_event_id(at_ms - SETTLED_MS))
            .order_by(column.event_id.desc())
            .limit(1)
        )
        rows = await self._rows(statement)
        return f"{rows[0].xid or 0}.{rows[0].position}" if rows else None

    async def everything(self) -> AsyncIterator[Sequence[LoggedEvent]]:
        statement, position = sa.select(self.table), self.table.c.position
        async for rows in batches(self.database, statement, position, limit=_BATCH):
            yield [self._logged(row) for row in rows]

    async def restore(self, events: Sequence[LoggedEvent]) -> None:
        ids = [each.event_id for each in events]
        there = sa.select(self.table.c.event_id).where(self.table.c.event_id.in_(ids))
        insert = EventWriter(self.table).insert

        def work(connection: sa.Connection) -> None:
            known = set(connection.scalars(there))
            rows = [
                _row(each.event_id, each.event) for each in events if each.event_id not in known
            ]
            if rows:
                insert.execute(connection, rows)

        await self.database.write(work)

    async def finish_restore(self) -> None:
        await self.database.write(partial(order_by_ids, table=self.table))

    async def first_id_after(self, position: str) -> str | None:
        column = self.table.c
        xid, last = (int(each) for each in position.split("."))
        here = sa.tuple_(sa.func.coalesce(column.xid, 0), column.position)
        follows = here > sa.tuple_(xid, last) if xid else column.position > last
        rows = await self._rows(sa.select(sa.func.min(column.event_id)).where(follows))
        found: str | None = rows[0][0]
        return found

    async def position_at(self, event_id: str | None) -> str | None:
        column = self.table.c
        columns = sa.select(column.xid, column.position).limit(1)
        if event_id is not None:
            first = columns.where(column.event_id >= event_id).order_by(column.position)
            if rows := await self._rows(first):
                return f"{rows[0].xid or 0}.{rows[0].position - 1}"
        rows = await self._rows(columns.order_by(column.position.desc()))
        return f"{rows[0].xid or 0}.{rows[0].position}" if rows else None

    async def prune(self, *, before_ms: int, after: str | None) -> Pruned:
        column = self.table.c
        batch = (
            sa.select(column.position, column.event_id, self._is_needed().label("is_needed"))
            .where(column.event_id < first_event_id(before_ms), column.event_id > (after or ""))
            .order_by(column.event_id)
            .limit(_BATCH)
        )

        rows = await self._rows(batch)
        unneeded = [row.position for row in rows if not row.is_needed]
        if unneeded:  # they can't become needed again, so a later delete is safe
            statement = self.table.delete().where(column.position.in_(unneeded))
            await self.database.write(lambda connection: connection.execute(statement))
        return Pruned(len(unneeded), rows[-1].event_id if len(rows) == _BATCH else None)

    def _is_needed(self) -> sa.ColumnElement[bool]:
        """Whether the state of a live subject depends on the event."""
        column, later = self.table.c, self.table.alias("later")
        superseded = sa.exists().where(
            later.c.subject_key == column.subject_key,
            later.c.subject == column.subject,
            later.c.position > column.position,
            later.c.effect == Effect.FULL,
        )
        return sa.and_(column.effect != Effect.NONE, self._is_alive(), sa.not_(superseded))

    def _is_alive(self) -> sa.ColumnElement[bool]:
        subject = self.table.c.subject
        return sa.or_(*(sa.exists().where(each == subject) for each in self.subjects))

    def _matching(self, query: EventQuery) -> list[sa.ColumnElement[bool]]:
        column = self.table.c
        named = {
            column.subject: query.subject,
            column.actor: query.actor,
            column.account_id: query.account_id,
        }
        conditions = [each == value for each, value in named.items() if value is not None]
        if query.kind is not None and query.kind.endswith(ANY_KIND):
            prefix = query.kind.removesuffix(ANY_KIND)
            conditions.append(column.kind.startswith(prefix, autoescape=True))
        elif query.kind is not None:
            conditions.append(column.kind == query.kind)
        if query.subject is not None:
            conditions.append(column.subject_key == subject_key(query.subject))
        if query.from_ms is not None:
            conditions.append(column.event_id > first_event_id(query.from_ms))
        if query.to_ms is not None:
            conditions.append(column.event_id < first_event_id(query.to_ms))
        return conditions

    def _next(
        self, connection: sa.Connection, xid: int, position: int, limit: int
    ) -> sa.Select[Any]:
        column = self.table.c
        statement = sa.select(self.table).limit(limit)
        if connection.dialect.name == "sqlite":  # one writer: positions are in commit order
            return statement.where(column.position > position).order_by(column.position)
        oldest_running = sa.literal_column(
            "pg_snapshot_xmin(pg_current_snapshot())::text::bigint", sa.BigInteger
        )
        here = sa.tuple_(column.xid, column.position)
        there = sa.tuple_(sa.literal(xid, sa.BigInteger), sa.literal(position, sa.BigInteger))
        return statement.where(here > there, column.xid < oldest_running).order_by(
            column.xid, column.position
        )

    async def _rows(self, statement: sa.Select[Any]) -> Sequence[Any]:
        return await self.database.read(lambda connection: connection.execute(statement).all())

    def _logged(self, row: Any) -> LoggedEvent:
        event = Event.of_stored(row._mapping)  # noqa: SLF001 - SQLAlchemy's public mapping
        return LoggedEvent(row.event_id, self.part, event)


def order_by_ids(connection: sa.Connection, *, table: sa.Table) -> None:
    """Number all events anew in the order of their ids, but each after those of its subject with
    smaller sequences. Negative numbers in between keep the key unique."""
    column = table.c
    ordered = sa.select(
        column.position,
        sa.func.max(column.event_id)
        .over(partition_by=column.subject, order_by=column.sequence)
        .label("after"),
        column.sequence,
    ).subquery()
    number = sa.func.row_number().over(
        order_by=(ordered.c.after, ordered.c.sequence, ordered.c.position)
    )
    numbers = sa.select(ordered.c.position.label("old"), number.label("new")).subquery()
    changes: dict[str, Any] = {"position": -numbers.c.new}
    if connection.dialect.name == "postgresql":  # readers follow it before the position
        changes["xid"] = sa.literal_column("pg_current_xact_id()::text::bigint")
    connection.execute(table.update().where(column.position == numbers.c.old).values(changes))
    connection.execute(table.update().values(position=-column.position))
    set_identity(connection, table)


def set_identity(connection: sa.Connection, table: sa.Table) -> None:
    """After rows were inserted with their numbers: later ones get greater numbers. SQLite does so
    by itself."""
    [key] = table.primary_key
    if connection.dialect.name == "postgresql":
        sequence = sa.func.pg_get_serial_sequence(table.fullname, key.name)
        following = sa.select(sa.func.coalesce(sa.func.max(key), 0) + 1).scalar_subquery()
        connection.execute(sa.select(sa.func.setval(sequence, following, sa.false())))


class MergedEvents:
    """Newest first across all logs; each log in its own order. A cursor holds the position in each
    log, so no event is repeated or skipped."""

    def __init__(self, *logs: SqlEventLog) -> None:
        self._logs = list(logs)

    def add(self, log: SqlEventLog) -> None:
        """Add the log of a part that is built later."""
        self._logs.append(log)

    async def page(self, query: EventQuery, *, limit: int, cursor: str | None) -> Page[LoggedEvent]:
        listing = f"events {[log.part for log in self._logs]} {query}"
        return await _merged_page(self._logs, listing, query, limit=limit, cursor=cursor)


async def _merged_page(
    logs: Sequence[SqlEventLog], listing: str, query: EventQuery, *, limit: int, cursor: str | None
) -> Page[LoggedEvent]:
    positions = [None] * len(logs) if cursor is None else decode_cursor(listing, cursor)
    if len(positions) != len(logs):
        raise InvalidCursorError
    found = [
        [(index, key, event) for key, event in await log.newest(query, limit + 1, before=position)]
        for index, (log, position) in enumerate(zip(logs, positions, strict=True))
    ]
    merged = list(heapq.merge(*found, key=lambda each: each[2].event_id, reverse=True))
    for number, key, _ in merged[:limit]:
        positions[number] = key
    next_cursor = encode_cursor(listing, positions) if len(merged) > limit else None
    return Page([event for _, _, event in merged[:limit]], next_cursor)
