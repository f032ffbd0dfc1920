"""Statements that run thousands of times a second, passed directly to the driver.

SQLAlchemy's overhead per statement exceeds the engine's work on it, and ours.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPICursor

from sandyard.kit.sql.column_types import cast_type

_PORTION = 100


def run_in_driver(connection: sa.Connection, text: str, values: Sequence[Any]) -> DBAPICursor:
    """Run the statement in the connection's transaction. As with SQLAlchemy's own execution, errors
    are SQLAlchemy's, and a lost connection does not return to the pool."""
    if not connection.in_transaction():
        connection.begin()
    cursor = connection.connection.cursor()
    dialect = connection.dialect
    try:
        cursor.execute(text, values)
    except dialect.loaded_dbapi.Error as error:
        if dialect.is_disconnect(error, connection.connection.dbapi_connection, cursor):
            connection.invalidate(error)
        base = dialect.loaded_dbapi.Error
        raise sa.exc.DBAPIError.instance(text, None, error, base, dialect=dialect) from error
    return cursor


class Prepared:
    """A statement compiled once per engine."""

    def __init__(self, statement: Any) -> None:
        self._statement = statement
        self._compiled: dict[str, tuple[str, list[tuple[str, Any]]]] = {}

    def execute(self, connection: sa.Connection, values: Mapping[str, Any]) -> DBAPICursor:
        text, parameters = self._for(connection.dialect)
        ordered = tuple([values.get(name, fixed) for name, fixed in parameters])
        return run_in_driver(connection, text, ordered)

    def _for(self, dialect: sa.Dialect) -> tuple[str, list[tuple[str, Any]]]:
        """The SQL text, and the name and default value of each placeholder."""
        if dialect.name not in self._compiled:
            compiled = self._statement.compile(dialect=dialect)
            parameters = [(name, compiled.params[name]) for name in compiled.positiontup]
            self._compiled[dialect.name] = str(compiled), parameters
        return self._compiled[dialect.name]


def array_rows(dialect: sa.Dialect, columns: Sequence[sa.Column[Any]], *, first: int = 1) -> str:
    """For PostgreSQL, the rows of one array per column; the first placeholder has this number."""
    arrays = (
        f"${number}::{cast_type(column.type, dialect)}[]"
        for number, column in enumerate(columns, first)
    )
    return f"unnest({', '.join(arrays)})"


class BatchInsert:
    """An INSERT of many rows, whose values are in column order.

    SQLite gets a placeholder for each value, PostgreSQL one array per column, so that its text is
    the same for any number of rows and is planned once.
    """

    def __init__(
        self, table: sa.Table, columns: Sequence[str], *, ignore_existing: bool = False
    ) -> None:
        self.columns = [table.c[name] for name in columns]
        self._into = f"INTO {table.fullname} ({', '.join(columns)})"
        self._ignore_existing = ignore_existing
        self._texts: dict[tuple[str, int], str] = {}

    def execute(self, connection: sa.Connection, rows: Sequence[Sequence[Any]]) -> DBAPICursor:
        dialect = connection.dialect
        if dialect.name == "sqlite":
            key = (dialect.name, len(rows))
            text = self._texts.get(key) or self._texts.setdefault(key, self._values(len(rows)))
            return run_in_driver(connection, text, tuple(chain.from_iterable(rows)))
        key = (dialect.name, 0)
        text = self._texts.get(key) or self._texts.setdefault(key, self._arrays(dialect))
        return run_in_driver(connection, text, arrays_of(rows))

    def insert(self, connection: sa.Connection, rows: Sequence[Sequence[Any]]) -> int:
        """The number of rows inserted. SQLite gets them in chunks, so that few statements are
        prepared and cached."""
        if not rows:
            return 0
        if connection.dialect.name != "sqlite":
            return self.execute(connection, rows).rowcount
        portions = (rows[at : at + _PORTION] for at in range(0, len(rows), _PORTION))
        return sum(self.execute(connection, portion).rowcount for portion in portions)

    def _values(self, count: int) -> str:
        # OR IGNORE can't fail midway, so SQLite does not copy pages for a rollback; DO NOTHING can.
        row = f"({', '.join('?' * len(self.columns))})"
        ignoring = "OR IGNORE " if self._ignore_existing else ""
        rows = ", ".join([row] * count)
        return f"INSERT {ignoring}{self._into} VALUES {rows}"  # noqa: S608 - our own names

    def _arrays(self, dialect: sa.Dialect) -> str:
        suffix = " ON CONFLICT DO NOTHING" if self._ignore_existing else ""
        rows = array_rows(dialect, self.columns)
        return f"INSERT {self._into} SELECT * FROM {rows}{suffix}"  # noqa: S608 - our own names


def arrays_of(rows: Sequence[Sequence[Any]]) -> tuple[list[Any], ...]:
    return tuple(list(column) for column in zip(*rows))  # noqa: B905 - rows are of one length


class KeyLookup:
    """A SELECT of the rows with any of the given keys, their values in column order.

    SQLAlchemy's own IN is rendered for every execution, which costs more than the query.
    """

    def __init__(self, table: sa.Table, key: str, columns: Sequence[str]) -> None:
        self._select = f"SELECT {', '.join(columns)} FROM {table.fullname} WHERE {key}"  # noqa: S608 - our own names
        self._type = table.c[key].type

    def rows(self, connection: sa.Connection, keys: Sequence[str]) -> Sequence[Any]:
        if connection.dialect.name == "sqlite":
            text = f"{self._select} IN ({', '.join('?' * len(keys))})"
            return run_in_driver(connection, text, tuple(keys)).fetchall()
        text = f"{self._select} = ANY($1::{cast_type(self._type, connection.dialect)}[])"
        return run_in_driver(connection, text, (list(keys),)).fetchall()
