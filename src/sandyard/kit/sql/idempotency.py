"""Records of calls on SQLite or PostgreSQL."""

from dataclasses import asdict

import sqlalchemy as sa

from sandyard.kit.idempotency import Record
from sandyard.kit.sql.column_types import Varchar, columns_of
from sandyard.kit.sql.columns import index
from sandyard.kit.sql.database import Database, insert_or_ignore


def record_table(metadata: sa.MetaData) -> sa.Table:
    return sa.Table(
        "idempotency_records",
        metadata,
        *columns_of(
            Record,
            primary_key=("record_id",),
            record_id=Varchar(64),
            request_hash=Varchar(64),
            content=sa.Text,
            holder=Varchar(64),
            held_until=sa.Double,
            expires_at=sa.Double,
            status=sa.Integer,
        ),
        index("expires_at"),
    )


class SqlRecords:
    def __init__(self, database: Database, table: sa.Table) -> None:
        self._database = database
        self._table = table

    async def add(self, record: Record) -> bool:
        return await self._database.write(
            lambda connection: (
                connection.execute(
                    insert_or_ignore(connection, self._table).values(asdict(record))
                ).rowcount
                == 1
            )
        )

    async def find(self, record_id: str) -> Record | None:
        statement = sa.select(self._table).where(self._table.c.record_id == record_id)
        row = await self._database.read(lambda connection: connection.execute(statement).first())
        return None if row is None else Record(**row._mapping)  # noqa: SLF001 - SQLAlchemy's public name

    async def replace(self, before: Record, after: Record | None) -> bool:
        table = self._table
        unchanged = (
            table.c.record_id == before.record_id,
            table.c.holder == before.holder,
            table.c.status.is_not_distinct_from(before.status),
        )
        changed = table.delete() if after is None else table.update().values(asdict(after))
        return await self._changed(changed.where(*unchanged)) == 1

    async def prune(self, *, now: float) -> int:
        return await self._changed(self._table.delete().where(self._table.c.expires_at <= now))

    async def _changed(self, statement: sa.UpdateBase) -> int:
        return await self._database.write(lambda connection: connection.execute(statement).rowcount)
