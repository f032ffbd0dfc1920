"""Entities read from their tables: one, some, a page, or all of them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Generic

import sqlalchemy as sa

from sandyard.kit.changes.transitions import E, subject_of
from sandyard.kit.concurrency.batching import BatchedLookup
from sandyard.kit.paging import Page
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.paging import Order, page_of
from sandyard.kit.sql.transitions import EntityTable

_BATCH = 500


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
    limit: int,
    order: sa.ColumnElement[object] | None = None,
) -> list[E]:
    """Ordered if an order is given."""
    statement = sa.select(*mapping.columns).where(*conditions).limit(limit)
    if order is not None:
        statement = statement.order_by(order)
    rows = await database.read(lambda connection: connection.execute(statement).all())
    return [mapping.entity_of(row) for row in rows]


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
    last = ""
    while True:
        found = await find_entities(
            database, mapping, mapping.subject > last, limit=_BATCH, order=mapping.subject
        )
        if not found:
            return
        last = subject_of(found[-1])
        yield found
