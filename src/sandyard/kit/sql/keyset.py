"""All rows of a statement, in batches along a key."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from sandyard.kit.sql.database import Database


async def batches(
    database: Database,
    statement: sa.Select[Any],
    *key: sa.ColumnElement[Any],
    limit: int,
    after: Sequence[Any] | None = None,
) -> AsyncIterator[Sequence[Any]]:
    """The rows in the order of this unique key, whose columns the statement has; if given, those
    after this one. Each batch is a read of its own: rows may change meanwhile."""
    ordered = statement.order_by(*key).limit(limit)
    while rows := await database.read(partial(_read, statement=_following(ordered, key, after))):
        yield rows
        after = [rows[-1]._mapping[each] for each in key]  # noqa: SLF001 - its public mapping


def _following(
    statement: sa.Select[Any], key: Sequence[sa.ColumnElement[Any]], after: Sequence[Any] | None
) -> sa.Select[Any]:
    if after is None:
        return statement
    last = [sa.literal(value, each.type) for value, each in zip(after, key, strict=True)]
    if len(key) == 1:
        return statement.where(key[0] > last[0])
    # The first condition is for the planner, which derives no range from the tuple.
    return statement.where(key[0] >= last[0], sa.tuple_(*key) > sa.tuple_(*last))


def _read(connection: sa.Connection, *, statement: sa.Select[Any]) -> Sequence[Any]:
    return connection.execute(statement).all()
