"""Statements that run thousands of times a second, passed directly to the driver.

SQLAlchemy's overhead per statement exceeds the engine's work on it, and ours.
"""

from abc import ABC, abstractmethod
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


class Batch(ABC):
    """A statement about many rows, whose values are in column order.

    SQLite gets a placeholder for each value, PostgreSQL one array per column, so that its text is
    the same for any number of rows and is planned once.
    """

    def __init__(self, table: sa.Table, columns: Sequence[str]) -> None:
        self.columns = columns
        self._table = table
        self._texts: dict[tuple[str, int], str] = {}

    def execute(self, connection: sa.Connection, rows: Sequence[Sequence[Any]]) -> DBAPICursor:
        dialect = connection.dialect
        if dialect.name == "sqlite":
            key = (dialect.name, len(rows))
            text = self._texts.get(key) or self._texts.setdefault(key, self._sqlite(len(rows)))
            return run_in_driver(connection, text, tuple(chain.from_iterable(rows)))
        key = (dialect.name, 0)
        text = self._texts.get(key) or self._texts.setdefault(key, self.postgresql(dialect))
        return run_in_driver(connection, text, arrays_of(rows))

    def postgresql(self, dialect: sa.Dialect, *, first: int = 1) -> str:
        """The SQL for PostgreSQL; its first placeholder has the number `first`."""
        return self._from_arrays(self.arrays(dialect, first=first))

    def arrays(self, dialect: sa.Dialect, *, first: int = 1) -> str:
        arrays = ", ".join(
            f"${number}::{cast_type(self._table.c[name].type, dialect)}[]"
            for number, name in enumerate(self.columns, first)
        )
        return f"unnest({arrays})"

    def _sqlite(self, count: int) -> str:
        row = f"({', '.join('?' * len(self.columns))})"
        return self._from_values(f"VALUES {', '.join([row] * count)}")

    @abstractmethod
    def _from_values(self, values: str) -> str:
        """The SQL for SQLite, given the rows in `values`."""

    @abstractmethod
    def _from_arrays(self, arrays: str) -> str:
        """The SQL for PostgreSQL, given the rows in `arrays`."""


class BatchInsert(Batch):
    """An INSERT of a whole batch."""

    def __init__(
        self, table: sa.Table, columns: Sequence[str], *, ignore_existing: bool = False
    ) -> None:
        super().__init__(table, columns)
        self._into = f"INTO {table.fullname} ({', '.join(columns)})"
        self._ignore_existing = ignore_existing

    def insert(self, connection: sa.Connection, rows: Sequence[Sequence[Any]]) -> int:
        """The number of rows inserted. SQLite gets them in chunks, so that few statements are
        prepared and cached."""
        if not rows:
            return 0
        if connection.dialect.name != "sqlite":
            return self.execute(connection, rows).rowcount
        portions = (rows[at : at + _PORTION] for at in range(0, len(rows), _PORTION))
        return sum(self.execute(connection, portion).rowcount for portion in portions)

    def _from_values(self, values: str) -> str:
        # OR IGNORE can't fail midway, so SQLite does not copy pages for a rollback; DO NOTHING can.
        return f"INSERT {'OR IGNORE ' if self._ignore_existing else ''}{self._into} {values}"

    def _from_arrays(self, arrays: str) -> str:
        suffix = " ON CONFLICT DO NOTHING" if self._ignore_existing else ""
        return f"INSERT {self._into} SELECT * FROM {arrays}{suffix}"  # noqa: S608 - our own names


class BatchUpdate(Batch):
    """An UPDATE of the rows with the given keys, each with its own values. The key is the first
    column."""

    def _from_values(self, values: str) -> str:
        names = [f"column{number}" for number in range(1, len(self.columns) + 1)]
        return self._text(names, f"({values}) AS new")

    def _from_arrays(self, arrays: str) -> str:
        return self._text(self.columns, f"{arrays} AS new ({', '.join(self.columns)})")

    def _text(self, names: Sequence[str], source: str) -> str:
        name = self._table.fullname
        assignments = ", ".join(
            f"{column} = new.{value}"
            for column, value in zip(self.columns[1:], names[1:], strict=True)
        )
        same = f"{self._table.name}.{self.columns[0]} = new.{names[0]}"
        return f"UPDATE {name} SET {assignments} FROM {source} WHERE {same}"  # noqa: S608 - our own names


class CombinedBatches:
    """Several non-empty batches that are independent of each other.

    PostgreSQL gets them as one statement: each additional statement is another round trip, which
    costs as much as its work. SQLite gets them one after another.
    """

    def __init__(self, *batches: Batch) -> None:
        self._batches = batches
        self._text: str | None = None

    def execute(self, connection: sa.Connection, *rows: Sequence[Sequence[Any]]) -> None:
        """`rows` are the rows of each batch."""
        if connection.dialect.name == "sqlite":
            for batch, each in zip(self._batches, rows, strict=True):
                batch.execute(connection, each)
            return
        if self._text is None:
            self._text = self._postgresql(connection.dialect)
        values = chain.from_iterable(arrays_of(each) for each in rows)
        run_in_driver(connection, self._text, tuple(values))

    def _postgresql(self, dialect: sa.Dialect) -> str:
        texts: list[str] = []
        first = 1
        for batch in self._batches:
            texts.append(batch.postgresql(dialect, first=first))
            first += len(batch.columns)
        *before, last = texts
        named = ", ".join(f"batch_{number} AS ({text})" for number, text in enumerate(before))
        return f"WITH {named} {last}"


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
