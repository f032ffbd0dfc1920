"""Keyset pagination of a SQL listing, stable while rows change."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import sqlalchemy as sa

from sandyard.kit.paging import InvalidCursorError, decode_cursor, encode_cursor
from sandyard.kit.sql.database import Database

Order = tuple[sa.ColumnElement[Any], sa.ColumnElement[Any]]
"""The sort column of a listing, and its tie-breaker."""


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
