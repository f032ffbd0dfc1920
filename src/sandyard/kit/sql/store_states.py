"""A part's store in SQL: its state, and the database that is used only with a right to.

The table of the state is created by the first command that sets one. It is not part of the schema,
so that a store of any version can be moved; without the table the store is open.
"""

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import orjson
import sqlalchemy as sa

from sandyard.kit.sql.database import Database, Work
from sandyard.kit.sql.transitions import lock_name
from sandyard.kit.store_states import MoveConflictError, Phase, StoreState, WriteRight

T = TypeVar("T")
R = TypeVar("R")

_MOVED_AWAY = "SYMOV"
"""PostgreSQL's error code of a write that a trigger refuses."""


def state_table(part: str) -> sa.Table:
    return sa.Table(
        "store_state",
        sa.MetaData(schema=part),
        sa.Column("phase", sa.String(16), primary_key=True),
        sa.Column("move_id", sa.String(32), nullable=False),
        sa.Column("other", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("done", sa.Text, nullable=False),
    )


class SqlStoreStates:
    def __init__(self, database: Database, part: str) -> None:
        self._database = database
        self._part = part
        self.table = state_table(part)
        self._is_made = False

    async def read(self) -> StoreState | None:
        return await self._database.read(self.current)

    def current(self, connection: sa.Connection) -> StoreState | None:
        """The table is looked for until it is there."""
        self._is_made = self._is_made or _has(connection, self.table)
        row = connection.execute(sa.select(self.table)).first() if self._is_made else None
        if row is None:
            return None
        return StoreState(Phase(row.phase), row.move_id, row.other, row.at, orjson.loads(row.done))

    async def change(self, before: StoreState | None, after: StoreState) -> None:
        def work(connection: sa.Connection) -> None:
            lock_name(connection, f"{self._part} store state")
            if connection.dialect.name == "postgresql":
                connection.execute(sa.schema.CreateSchema(self._part, if_not_exists=True))
            self.table.create(connection, checkfirst=True)
            if self.current(connection) != before:
                raise MoveConflictError
            self.write(connection, after)

        await self._database.write(work)

    def write(self, connection: sa.Connection, state: StoreState) -> None:
        """In the caller's transaction, by the process that moves the store."""
        connection.execute(self.table.delete())
        row = asdict(state) | {
            "phase": state.phase.value,
            "done": orjson.dumps(state.done).decode(),
        }
        connection.execute(self.table.insert().values(row))

    async def is_empty(self) -> bool:
        def work(connection: sa.Connection) -> bool:
            events = sa.table("events", sa.column("position"), schema=self._part)
            if not _has(connection, events):
                return True
            return connection.execute(sa.select(events.c.position).limit(1)).first() is None

        return await self._database.read(work)

    async def refuse_writes(self) -> None:
        """On PostgreSQL: wait for all transactions that write, and refuse all later ones, also of
        a process that was suspended after it had checked its right. SQLite has one process."""
        if self._database.concurrent_writers:
            await self._database.write(self._create_triggers)

    async def accept_writes(self) -> None:
        if self._database.concurrent_writers:
            await self._database.write(self._drop_triggers)

    def _create_triggers(self, connection: sa.Connection) -> None:
        from sandyard.kit.sql.migrations import lock_tables

        tables = self._guarded(connection)
        lock_tables(connection, *tables)
        connection.exec_driver_sql(
            f"CREATE OR REPLACE FUNCTION {self._part}.refuse_writes() RETURNS trigger AS $$ BEGIN "
            f"RAISE EXCEPTION 'the data was moved away' USING ERRCODE = '{_MOVED_AWAY}'; "
            "END $$ LANGUAGE plpgsql"
        )
        for name in tables:
            connection.exec_driver_sql(
                f"CREATE OR REPLACE TRIGGER refuse_writes BEFORE INSERT OR UPDATE OR DELETE OR "
                f"TRUNCATE ON {name} EXECUTE FUNCTION {self._part}.refuse_writes()"
            )

    def _drop_triggers(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"DROP FUNCTION IF EXISTS {self._part}.refuse_writes() CASCADE")

    def _guarded(self, connection: sa.Connection) -> list[str]:
        names = sa.inspect(connection).get_table_names(schema=self._part)
        return [f"{self._part}.{name}" for name in names if name != self.table.name]


def _has(connection: sa.Connection, table: sa.FromClause) -> bool:
    return sa.inspect(connection).has_table(table.name, schema=table.schema)  # type: ignore[attr-defined]


class FencedDatabase:
    """A database that is used only while this process has the right to."""

    def __init__(self, database: Database, right: WriteRight) -> None:
        self._database = database
        self._right = right
        self.name = database.name
        self.concurrent_writers = database.concurrent_writers

    @property
    def folder(self) -> Path | None:
        return self._database.folder

    async def read(self, work: Work[T]) -> T:
        if not self._right.is_valid():
            await self._right.renew()
        return await self._database.read(work)

    async def write(self, work: Work[T]) -> T:
        if not self._right.is_valid():
            await self._right.renew()
        return await self._database.write(work)

    async def run_statement(self, work: Work[T]) -> T:
        if not self._right.is_valid():
            await self._right.renew()
        return await self._database.run_statement(work)

    async def hold(self, work: Work[T], then: Callable[[T], Awaitable[R]]) -> R:
        if not self._right.is_valid():
            await self._right.renew()
        return await self._database.hold(work, then)

    async def check(self) -> None:
        await self._right.renew()
        await self._database.check()

    async def erase_deleted(self) -> None:
        await self._database.erase_deleted()

    async def close(self) -> None:
        await self._right.end()
        await self._database.close()
