"""States of circuit breakers in a SQL table."""

from typing import Any

import sqlalchemy as sa

from sandyard.kit.circuits import CircuitState
from sandyard.kit.sql.database import Database, insert_or_ignore


def circuit_table(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "circuits",
        metadata,
        sa.Column("circuit", sa.String(64), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("opened_at", sa.Double),
    )


class SqlCircuits:
    def __init__(self, database: Database, table: sa.Table) -> None:
        self._database = database
        self._table = table

    async def find(self, circuit: str) -> CircuitState:
        statement = sa.select(self._table).where(self._table.c.circuit == circuit)
        row = await self._database.read(lambda connection: connection.execute(statement).first())
        return CircuitState() if row is None else _state_of(row)

    async def move(self, circuit: str, state: str, opened_at: float | None) -> CircuitState:
        return await self._change(circuit, state=state, opened_at=opened_at)

    async def count_failure(self, circuit: str) -> CircuitState:
        return await self._change(circuit, failures=self._table.c.failures + 1)

    async def forget_failures(self, circuit: str) -> CircuitState:
        return await self._change(circuit, failures=0)

    async def _change(self, circuit: str, **values: Any) -> CircuitState:
        table = self._table
        change = table.update().where(table.c.circuit == circuit).values(values).returning(table)

        def work(connection: sa.Connection) -> CircuitState:
            new = insert_or_ignore(connection, table)
            connection.execute(new.values(circuit=circuit, state="closed", failures=0))
            return _state_of(connection.execute(change).one())

        return await self._database.write(work)


def _state_of(row: Any) -> CircuitState:
    return CircuitState(row.state, row.failures, row.opened_at)
