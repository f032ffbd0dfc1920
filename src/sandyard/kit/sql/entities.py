"""Entities read from their tables: one, some, a page, or all of them. Pages are by keyset, so that
they are stable while rows change."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Generic

import sqlalchemy as sa

from sandyard.kit.changes.transitions import E, subject_of
from sandyard.kit.concurrency.batching import BatchedLookup
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.keyset import batches
from sandyard.kit.sql.transitions import EntityTable

_BATCH = 500
Order = tuple[sa.ColumnElement[Any], sa.ColumnElement[Any]]
"""The sort column of a listing, and its tie-breaker."""


async def find_entity(
    database: Database, mapping: EntityTable[E], *conditions: sa.ColumnElement[bool]
) -> E | None:
    found = await find_entities(database, mapping, *conditions, limit=1)
    return found[0] if found else None


class EntityLookup(Generic[E]):
    """`find_entity` by id, for frequent lookups: concurrent callers share a statement. Create it
    once, as creating it takes longer than running it."""

    def __init__(
        self, database: Database, mapping: EntityTable[E], *conditions: sa.ColumnElement[bool]
    ) -> None:
        self._database = database
        self._mapping = mapping
        wanted = mapping.subject.in_(sa.bindparam("subjects", expanding=True))
        self._statement = sa.select(*mapping.columns).where(wanted, *conditions)
        self._lookup: BatchedLookup[str, E] = BatchedLookup(self._find_all)

    async def find(self, subject: str) -> E | None:
        return await self._lookup.find(subject)

    async def _find_all(self, subjects: Sequence[str]) -> Mapping[str, E]:
        values = {"subjects": list(subjects)}
        rows = await self._database.read(lambda c: c.execute(self._statement, values).all())
        entities = [self._mapping.entity_of(row) for row in rows]
        return {subject_of(each): each for each in entities}


async def find_entities(
    database: Database,
    mapping: EntityTable[E],
    *conditions: sa.ColumnElement[bool],
    limit: int | None = None,
    order: sa.ColumnElement[object] | None = None,
) -> list[E]:
    """All of them without a limit; ordered if an order is given."""
    statement = sa.select(*mapping.columns).where(*conditions).limit(limit)
    if order is not None:
        statement = statement.order_by(order)
    return await database.read(
        lambda connection: [mapping.entity_of(row) for row in connection.execute(statement)]
    )


async def page_of_entities(
    database: Database,
    mapping: EntityTable[E],
    *conditions: sa.ColumnElement[bool],
    order: Order,
    descending: bool,
    listing: str,
    limit: int,
    cursor: str | None,
) -> Page[E]:
    rows, next_cursor = await page_of(
        database,
        sa.select(*mapping.columns, order[1]).where(*conditions),
        order,
        listing=listing,
        limit=limit,
        cursor=cursor,
        descending=descending,
    )
    return Page([mapping.entity_of(row) for row in rows], next_cursor)


def contains(text: str, *columns: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Whether any of these columns contains the text, case-insensitively."""
    return sa.or_(*(column.icontains(text, autoescape=True) for column in columns))


async def all_entities(database: Database, mapping: EntityTable[E]) -> AsyncIterator[Sequence[E]]:
    """In batches, ordered by id. For verification."""
    statement = sa.select(*mapping.columns)
    async for rows in batches(database, statement, mapping.subject, limit=_BATCH):
        yield [mapping.entity_of(row) for row in rows]


async def page_of(
    database: Database,
    statement: sa.Select[Any],
    order: Order,
    *,
    listing: str,
    limit: int,
    cursor: str | None,
    descending: bool = True,
) -> tuple[Sequence[Any], str | None]:
    """A page ordered by two non-null columns, and the cursor of the next."""
    first, second = order
    if cursor is not None:
        position = _position(decode_cursor(listing, cursor), order)
        # Typed like the columns, as the type decides how an engine stores a value.
        there = sa.tuple_(sa.literal(position[0], first.type), sa.literal(position[1], second.type))
        here = sa.tuple_(first, second)
        statement = statement.where(
            # The first condition is for the planner, which derives no range from the tuple.
            first <= position[0] if descending else first >= position[0],
            here < there if descending else here > there,
        )
    by = (first.desc(), second.desc()) if descending else (first.asc(), second.asc())
    statement = statement.order_by(*by).limit(limit + 1)
    rows = await database.read(lambda connection: connection.execute(statement).all())
    if len(rows) <= limit:
        return rows, None
    last = rows[limit - 1]._mapping  # noqa: SLF001 - how SQLAlchemy names its public mapping
    return rows[:limit], encode_cursor(listing, [last[first], last[second]])


def _position(position: Sequence[Any], order: Order) -> list[Any]:
    if len(position) != len(order):
        raise InvalidCursorError
    return [_value(value, column) for value, column in zip(position, order, strict=True)]


def _value(value: Any, column: sa.ColumnElement[Any]) -> Any:
    kind = column.type.python_type
    if kind in (date, datetime) and isinstance(value, str):
        try:
            value = kind.fromisoformat(value)
        except ValueError as error:
            raise InvalidCursorError from error
        if isinstance(value, datetime) and value.tzinfo is None:
            raise InvalidCursorError
    if not isinstance(value, kind):
        raise InvalidCursorError
    return value
