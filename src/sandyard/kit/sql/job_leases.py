"""Job leases, and the states of circuit breakers, in SQL tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sandyard.kit.circuits import CircuitState
from sandyard.kit.jobs import JobRun
from sandyard.kit.sql.column_types import Varchar
from sandyard.kit.sql.database import Database, insert_or_ignore, insert_or_update

_NO_JOB = "write-check"


def job_table(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "jobs",
        metadata,
        sa.Column("job", Varchar(64), primary_key=True),
        sa.Column("holder", Varchar(64)),
        sa.Column("held_until", sa.Double),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
    )


class SqlJobLeases:
    def __init__(self, database: Database, table: sa.Table) -> None:
        self._database = database
        self._table = table

    async def acquire(
        self,
        job: str,
        *,
        holder: str,
        now: float,
        held_until: float,
        unless_started_after: float | None = None,
    ) -> bool:
        table = self._table
        is_free = sa.or_(table.c.holder.is_(None), table.c.held_until <= now)
        is_due: sa.ColumnElement[bool] = sa.true()
        if unless_started_after is not None:
            has_died = sa.and_(table.c.holder.is_not(None), table.c.held_until <= now)
            is_due = sa.or_(
                table.c.started_at.is_(None),
                table.c.started_at <= unless_started_after,
                has_died,
            )

        def work(connection: sa.Connection) -> bool:
            connection.execute(insert_or_ignore(connection, table).values(job=job))
            taken = connection.execute(
                table.update()
                .where(table.c.job == job, is_free, is_due)
                .values(holder=holder, held_until=held_until, started_at=now)
            )
            return taken.rowcount == 1

        return await self._database.write(work)

    async def renew(self, job: str, *, holder: str, held_until: float) -> bool:
        return await self._change(job, holder, held_until=held_until)

    async def release(self, job: str, *, holder: str, finished_at: float | None) -> None:
        finished = {} if finished_at is None else {"finished_at": finished_at}
        await self._change(job, holder, holder=None, held_until=None, **finished)

    async def _change(self, job: str, by: str, **values: str | float | None) -> bool:
        """False if this holder no longer has the job."""
        is_held = (self._table.c.job == job, self._table.c.holder == by)
        statement = self._table.update().where(*is_held).values(values)
        return await self._database.write(
            lambda connection: connection.execute(statement).rowcount == 1
        )

    async def runs(self, jobs: Sequence[str]) -> Mapping[str, JobRun]:
        table = self._table
        statement = sa.select(table).where(table.c.job.in_(jobs))
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return {row.job: JobRun(row.started_at, row.finished_at, row.held_until) for row in rows}

    async def touch(self, *, now: float) -> None:
        row = {"job": _NO_JOB, "finished_at": now}
        await self._database.write(
            lambda connection: insert_or_update(connection, self._table, row, key=["job"])
        )

    async def forget_holders(self) -> None:
        """Release every job. Only for a process that uses the engine exclusively."""
        statement = self._table.update().values(holder=None, held_until=None, started_at=None)
        await self._database.write(lambda connection: connection.execute(statement))


def circuit_table(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "circuits",
        metadata,
        sa.Column("circuit", Varchar(64), primary_key=True),
        sa.Column("state", Varchar(16), nullable=False),
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
