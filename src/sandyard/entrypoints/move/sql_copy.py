"""Copies the tables of a part between SQLite and PostgreSQL, in batches in the order of the key."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from sandyard.entrypoints.move.digests import Digest
from sandyard.entrypoints.move.errors import MoveError
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.events import set_identity
from sandyard.kit.sql.keyset import batches
from sandyard.kit.sql.store_states import SqlStoreStates
from sandyard.kit.store_states import MoveConflictError, StoreState

_BATCH = 2000
_NOT_MOVED = frozenset({"jobs", "circuits", "sink_streams"})
"""Job leases and circuits concern processes; the positions of sinks are translated."""
_OF_ENGINE = frozenset({"xid"})
"""Columns that the engine fills: transaction ids mean nothing elsewhere."""

Progress = Callable[[int], None]
Row = sa.Row[Any]


class SqlCopy:
    def __init__(self, source: Database, target: Database, metadata: sa.MetaData) -> None:
        self._source = source
        self._target = target
        self._states = SqlStoreStates(target, str(metadata.schema))

        self._tables = [each for each in metadata.sorted_tables if each.name not in _NOT_MOVED]
        """Those that are moved, each after those that it refers to."""

    async def _columns(self, table: sa.Table) -> list[sa.Column[Any]]:
        """Those that are moved. Raises MoveError if the target lacks one that the source has, of an
        older release."""
        here, there = [
            await database.read(partial(_names, table=table))
            for database in (self._source, self._target)
        ]
        columns = [column for column in table.c if column.name not in _OF_ENGINE]
        if missing := [each.name for each in columns if each.name in here - there]:
            raise MoveError(
                f"{table.fullname} still has {', '.join(missing)}, which a new one lacks. "
                "Finish the migration of the last upgrade first (docs/upgrade.md)."
            )
        return [column for column in columns if column.name in here]

    async def count(self) -> int:
        counts = [sa.select(sa.func.count()).select_from(each) for each in self._tables]
        return await self._source.read(
            lambda connection: sum(connection.scalar(each) or 0 for each in counts)
        )

    async def copy(self, state: StoreState, progress: Progress) -> StoreState:
        """Copy what the target has not yet; each batch is written with the state that records it.
        Returns the last state."""
        copied = 0
        for table in self._tables:
            last_key = state.done.get(table.name)
            if last_key is True:
                continue
            statement, key = sa.select(*await self._columns(table)), [*table.primary_key]
            async for rows in batches(self._source, statement, *key, limit=_BATCH, after=last_key):
                last_key = [getattr(rows[-1], each.name) for each in key]
                state = await self._write(state, table, rows, done=last_key)
                copied += len(rows)
                progress(copied)
            state = await self._write(state, table, (), done=True)
        return state

    async def _write(
        self, state: StoreState, table: sa.Table, rows: Sequence[Row], *, done: Any
    ) -> StoreState:
        """The state after these rows were copied: to this key, or True for the whole table."""
        after = replace(state, done={**state.done, str(table.name): done})
        await self._target.write(partial(self._add, state, after, table, rows))
        return after

    def _add(
        self,
        before: StoreState,
        after: StoreState,
        table: sa.Table,
        rows: Sequence[Row],
        connection: sa.Connection,
    ) -> None:
        if self._states.current(connection) != before:
            raise MoveConflictError
        if rows:
            values = [row._asdict() for row in rows]
            connection.execute(table.insert(), values)
        if after.done[str(table.name)] is True and _is_numbered(table):
            set_identity(connection, table)
        self._states.write(connection, after)

    async def empty(self) -> None:
        for table in reversed(self._tables):
            await self._target.write(partial(_delete_all, table=table))

    async def compare(self, progress: Progress) -> tuple[dict[str, int], list[str]]:
        counts: dict[str, int] = {}
        problems: list[str] = []
        read = 0
        for table in self._tables:
            columns = await self._columns(table)
            here = await _digest(self._source, table, columns)
            there = await _digest(self._target, table, columns)
            counts[str(table.name)] = here.count
            if here != there:
                problems.append(f"{table.fullname}: {here.count} rows here, {there.count} there")
            read += here.count
            progress(read)
        return counts, problems


def _names(connection: sa.Connection, *, table: sa.Table) -> set[str]:
    columns = sa.inspect(connection).get_columns(table.name, schema=table.schema)
    return {str(column["name"]) for column in columns}


def _is_numbered(table: sa.Table) -> bool:
    key = [*table.primary_key]
    return (
        len(key) == 1 and isinstance(key[0].type, sa.Integer) and key[0].autoincrement is not False
    )


def _delete_all(connection: sa.Connection, *, table: sa.Table) -> None:
    connection.execute(table.delete())


async def _digest(database: Database, table: sa.Table, columns: Sequence[sa.Column[Any]]) -> Digest:
    digest = Digest()
    statement = sa.select(*columns)
    async for rows in batches(database, statement, *table.primary_key, limit=_BATCH):
        digest.add(tuple(row) for row in rows)
    return digest
