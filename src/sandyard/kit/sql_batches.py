"""Many rows in one statement, whatever their number, handed straight to the driver."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import sqlalchemy as sa


class BatchInsert:
    """An INSERT of a whole batch, handed straight to the driver.

    SQLite gets a text with a place for each value, PostgreSQL one array per column, so that its
    text is the same for every number of rows and is planned once.
    """

    def __init__(
        self,
        table: sa.Table,
        columns: Sequence[str],
        *,
        ignore_existing: bool = False,
    ) -> None:
        self._table = table
        self._columns = columns
        self._suffix = " ON CONFLICT DO NOTHING" if ignore_existing else ""
        self._texts: dict[tuple[str, int], str] = {}

    def execute(
        self, connection: sa.Connection, rows: Sequence[Sequence[Any]]
    ) -> sa.CursorResult[Any]:
        """Insert the rows, whose values stand in the order of the columns."""
        dialect = connection.dialect
        if dialect.name == "sqlite":
            key = (dialect.name, len(rows))
            text = self._texts.get(key) or self._texts.setdefault(key, self._sqlite(len(rows)))
            return connection.exec_driver_sql(text, tuple(chain.from_iterable(rows)))
        key = (dialect.name, 0)
        text = self._texts.get(key) or self._texts.setdefault(key, self._postgresql(dialect))
        return connection.exec_driver_sql(text, tuple(list(column) for column in zip(*rows)))  # noqa: B905 - rows are of one length

    def _sqlite(self, count: int) -> str:
        row = f"({', '.join('?' * len(self._columns))})"
        return f"{self._into} VALUES {', '.join([row] * count)}{self._suffix}"

    def _postgresql(self, dialect: sa.Dialect) -> str:
        arrays = ", ".join(
            f"${place}::{self._table.c[name].type.compile(dialect)}[]"
            for place, name in enumerate(self._columns, 1)
        )
        return f"{self._into} SELECT * FROM unnest({arrays}){self._suffix}"  # noqa: S608 - our own names

    @property
    def _into(self) -> str:
        return f"INSERT INTO {self._table.fullname} ({', '.join(self._columns)})"


class KeyLookup:
    """A SELECT of the rows with any of the given keys.

    SQLAlchemy's own IN is written anew for every execution, which costs more than the search.
    """

    def __init__(self, table: sa.Table, key: str, columns: Sequence[str]) -> None:
        self._select = f"SELECT {', '.join(columns)} FROM {table.fullname} WHERE {key}"  # noqa: S608 - our own names
        self._type = table.c[key].type

    def execute(self, connection: sa.Connection, keys: Sequence[str]) -> sa.CursorResult[Any]:
        if connection.dialect.name == "sqlite":
            places = ", ".join("?" * len(keys))
            return connection.exec_driver_sql(f"{self._select} IN ({places})", tuple(keys))
        kind = self._type.compile(connection.dialect)
        return connection.exec_driver_sql(f"{self._select} = ANY($1::{kind}[])", (list(keys),))
