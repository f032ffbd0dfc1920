"""Measurements on SQLite or PostgreSQL."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from sandyard.kit.paging import Page
from sandyard.kit.sql.column_types import unix_seconds
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import page_of
from sandyard.platform.measurements.model import Measurement, MeasurementBucket
from sandyard.platform.schema.tables import sandbox_metrics

_column = sandbox_metrics.c


class SqlMeasurementStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, measurements: Sequence[Measurement]) -> None:
        rows = [asdict(each) | {"created_at": each.timestamp} for each in measurements]
        if rows:
            await self._database.write(
                lambda connection: connection.execute(sandbox_metrics.insert(), rows)
            )

    async def page(self, sandbox_id: str, *, limit: int, cursor: str | None) -> Page[Measurement]:
        rows, next_cursor = await page_of(
            self._database,
            sa.select(sandbox_metrics).where(_column.sandbox_id == sandbox_id),
            (_column.timestamp, _column.id),
            listing=f"samples {sandbox_id}",
            limit=limit,
            cursor=cursor,
        )
        names = [each.name for each in fields(Measurement)]
        found = [Measurement(**{name: getattr(row, name) for name in names}) for row in rows]
        return Page(found, next_cursor)

    async def buckets(
        self, sandbox_id: str, *, start: datetime, end: datetime, bucket_sec: int
    ) -> Sequence[MeasurementBucket]:
        def work(connection: sa.Connection) -> Sequence[Any]:
            second = unix_seconds(connection, _column.timestamp)
            bucket = (second // bucket_sec * bucket_sec).label("bucket")
            statement = (
                sa.select(
                    bucket,
                    sa.func.avg(_column.cpu_utilization).label("cpu"),
                    sa.func.avg(_column.memory_utilization).label("memory"),
                    sa.func.avg(_column.storage_utilization).label("storage"),
                    sa.func.count().label("number"),
                )
                .where(
                    _column.sandbox_id == sandbox_id,
                    _column.timestamp >= start,
                    _column.timestamp < end,
                )
                .group_by(sa.literal_column("bucket"))
                .order_by(sa.literal_column("bucket"))
            )
            return connection.execute(statement).all()

        return [
            MeasurementBucket(
                datetime.fromtimestamp(int(row.bucket), UTC),
                round(row.cpu, 3),
                round(row.memory, 3),
                round(row.storage, 3),
                row.number,
            )
            for row in await self._database.read(work)
        ]

    async def remove_before(self, moment: datetime, *, limit: int) -> int:
        old = sa.select(_column.id).where(_column.timestamp < moment).limit(limit)
        statement = sandbox_metrics.delete().where(_column.id.in_(old.scalar_subquery()))
        return await self._database.write(lambda connection: connection.execute(statement).rowcount)
