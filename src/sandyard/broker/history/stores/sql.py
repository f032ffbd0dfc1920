"""The pool's samples of the last day in SQL."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from sandyard.broker.history.model import PoolSample
from sandyard.broker.pool.model import Status
from sandyard.broker.stores.tables import samples
from sandyard.kit.sql.database import Database, insert_or_update


class SqlHistoryStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def samples(self, *, since: int) -> Sequence[PoolSample]:
        statement = sa.select(samples).where(samples.c.at >= since).order_by(samples.c.at)
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return [_sample_of(row) for row in rows]

    async def record(self, sample: PoolSample, *, kept_from: int) -> None:
        values = {
            "at": sample.at,
            "counts": {str(status): count for status, count in sample.counts.items()},
            "waiting": sample.waiting,
            "leases": sample.leases,
        }

        def work(connection: sa.Connection) -> None:
            insert_or_update(connection, samples, values, key=["at"])
            connection.execute(samples.delete().where(samples.c.at < kept_from))

        await self._database.write(work)


def _sample_of(row: Any) -> PoolSample:
    counts = {status: row.counts.get(str(status), 0) for status in Status}
    return PoolSample(row.at, counts, row.waiting, row.leases)
