"""Job leases in a SQL table."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from sandyard.kit.jobs import JobRun
from sandyard.kit.sql.database import Database, insert_or_ignore, upsert

_NO_JOB = "write-check"


def job_table(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "jobs",
        metadata,
        sa.Column("job", sa.String(64), primary_key=True),
        sa.Column("holder", sa.String(64)),
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
        table = self._table
        statement = (
            table.update()
            .where(table.c.job == job, table.c.holder == holder)
            .values(held_until=held_until)
        )
        return await self._database.write(
            lambda connection: connection.execute(statement).rowcount == 1
        )

    async def release(self, job: str, *, holder: str, finished_at: float | None) -> None:
        table = self._table
        values: dict[str, float | None] = {"holder": None, "held_until": None}
        if finished_at is not None:
            values["finished_at"] = finished_at
        statement = (
            table.update().where(table.c.job == job, table.c.holder == holder).values(values)
        )
        await self._database.write(lambda connection: connection.execute(statement))

    async def finished(self, jobs: Sequence[str]) -> Mapping[str, float]:
        table = self._table
        statement = sa.select(table.c.job, table.c.finished_at).where(
            table.c.job.in_(jobs), table.c.finished_at.is_not(None)
        )
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return {row.job: row.finished_at for row in rows}

    async def runs(self, jobs: Sequence[str]) -> Mapping[str, JobRun]:
        table = self._table
        statement = sa.select(table).where(table.c.job.in_(jobs))
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return {row.job: JobRun(row.started_at, row.finished_at, row.held_until) for row in rows}

    async def touch(self, *, now: float) -> None:
        def work(connection: sa.Connection) -> None:
            insert = upsert(connection, self._table).values(job=_NO_JOB, finished_at=now)
            connection.execute(
                insert.on_conflict_do_update(index_elements=["job"], set_={"finished_at": now})
            )

        await self._database.write(work)

    async def forget_holders(self) -> None:
        """Release every job. Only for a process that uses the engine exclusively."""
        statement = self._table.update().values(holder=None, held_until=None, started_at=None)
        await self._database.write(lambda connection: connection.execute(statement))
