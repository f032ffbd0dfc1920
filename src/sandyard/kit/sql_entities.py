"""Entities read from their tables: one, some, a page, or all of them."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Generic

import sqlalchemy as sa

from sandyard.kit.paging import Page
from sandyard.kit.sql import Database
from sandyard.kit.sql_paging import Order, page_of
from sandyard.kit.sql_transitions import EntityTable
from sandyard.kit.transitions import E, subject_of

_BATCH = 500


async def find_entity(
    database: Database, kept: EntityTable[E], *conditions: sa.ColumnElement[bool]
) -> E | None:
    found = await find_entities(database, kept, *conditions, limit=1)
    return found[0] if found else None


class EntityLookup(Generic[E]):
    """`find_entity` for what is asked for often. The statement is made once, with a `bindparam` for
    each value: to make it takes longer than to run it."""

    def __init__(self, kept: EntityTable[E], *conditions: sa.ColumnElement[bool]) -> None:
        self._kept = kept
        self._statement = sa.select(*kept.columns).where(*conditions).limit(1)

    async def find(self, database: Database, **values: Any) -> E | None:
        row = await database.read(
            lambda connection: connection.execute(self._statement, values).first()
        )
        return None if row is None else self._kept.entity_of(row)


async def find_entities(
    database: Database,
    kept: EntityTable[E],
    *conditions: sa.ColumnElement[bool],
    limit: int,
    order: sa.ColumnElement[object] | None = None,
) -> list[E]:
    """In this order, or in none."""
    statement = sa.select(*kept.columns).where(*conditions).limit(limit)
    if order is not None:
        statement = statement.order_by(order)
    rows = await database.read(lambda connection: connection.execute(statement).all())
    return [kept.entity_of(row) for row in rows]


async def page_of_entities(
    database: Database,
    kept: EntityTable[E],
    *conditions: sa.ColumnElement[bool],
    order: Order,
    descending: bool,
    listing: str,
    limit: int,
    cursor: str | None,
) -> Page[E]:
    rows, next_cursor = await page_of(
        database,
        sa.select(*kept.columns, order[1]).where(*conditions),
        order,
        listing=listing,
        limit=limit,
        cursor=cursor,
        descending=descending,
    )
    return Page([kept.entity_of(row) for row in rows], next_cursor)


async def all_entities(database: Database, kept: EntityTable[E]) -> AsyncIterator[Sequence[E]]:
    """In batches, in the order of their ids. For verification."""
    last = ""
    while True:
        found = await find_entities(
            database, kept, kept.subject > last, limit=_BATCH, order=kept.subject
        )
        if not found:
            return
        last = subject_of(found[-1])
        yield found
