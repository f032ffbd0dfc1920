"""The queue for sandboxes in SQL."""

from collections.abc import Sequence

import sqlalchemy as sa

from sandyard.broker.pool.stores.sql_rows import SqlReads, chunks
from sandyard.broker.queue.model import QueueOrder, Ticket
from sandyard.broker.stores.tables import TICKETS
from sandyard.broker.stores.tables import tickets as table
from sandyard.kit.sql.entities import find_entities, find_entity

_column = table.c
_queue_order = sa.tuple_(_column.urgency, _column.ticket_id)


class SqlQueue(SqlReads):
    """The tickets of a pool's store."""

    async def find_ticket(self, track_id: str, key: str) -> Ticket | None:
        return await find_entity(
            self._database, TICKETS, _column.track_id == track_id, _column.key == key
        )

    async def find_tickets(self, keys: Sequence[tuple[str, str]]) -> Sequence[Ticket]:
        found: list[Ticket] = []
        for chunk in chunks(keys):
            wanted = sa.tuple_(_column.track_id, _column.key).in_(chunk)
            found += await find_entities(self._database, TICKETS, wanted, limit=len(chunk))
        return found

    async def tickets(self, *, limit: int, after: QueueOrder | None) -> Sequence[Ticket]:
        statement = sa.select(table).order_by(_column.urgency, _column.ticket_id).limit(limit)
        if after is not None:
            statement = statement.where(_queue_order > sa.tuple_(*after))
        return [TICKETS.entity_of(row) for row in await self._rows(statement)]

    async def count_waiting(self, *, before: Ticket | None = None) -> int:
        statement = sa.select(sa.func.count()).where(_column.sandbox_id.is_(None))
        if before is not None:
            statement = statement.where(_queue_order < sa.tuple_(*before.queue_order))
        count = await self._database.read(lambda connection: connection.scalar(statement))
        return count or 0

    async def renew_tickets(self, tickets: Sequence[Ticket], *, asked_at: int) -> None:
        for chunk in chunks([each.ticket_id for each in tickets]):
            renewed = table.update().where(_column.ticket_id.in_(chunk))
            await self._execute(renewed.values(asked_at=asked_at))
