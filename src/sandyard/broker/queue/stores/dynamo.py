"""The queue for sandboxes on DynamoDB: one partition, in queue order."""

import asyncio
from collections.abc import Sequence

from sandyard.broker.queue.model import QueueOrder, Ticket
from sandyard.broker.stores.dynamo_entities import (
    QUEUE,
    entities_in,
    entity_of,
    queue_key,
    ticket_key,
    ticket_lookup_key,
)
from sandyard.kit.dynamo.items import Table

_MOST_LOOKED_UP = 25
"""Up to this many tickets are read by key, each for two reads of up to 4 KB. For more it is cheaper
to read the whole queue, which has more than ten tickets in 4 KB; a thousand waiting calls would
exceed the throughput that AWS allows for its partition."""


class DynamoQueue:
    """The tickets of a pool's store."""

    _table: Table
    _slots: asyncio.Semaphore

    async def find_ticket(self, track_id: str, key: str) -> Ticket | None:
        found = await self.find_tickets([(track_id, key)])
        return found[0] if found else None

    async def find_tickets(self, keys: Sequence[tuple[str, str]]) -> Sequence[Ticket]:
        if len(keys) > _MOST_LOOKED_UP:
            wanted, tickets = set(keys), await entities_in(self._table, Ticket, QUEUE)
            return [each for each in tickets if each.lease_key in wanted]
        lookups = await self._table.get_many([ticket_lookup_key(*each) for each in keys])
        items = await self._table.get_many(
            [{"PK": QUEUE, "SK": each["ticket_sk"]} for each in lookups]
        )
        return [entity_of(Ticket, item) for item in items]

    async def tickets(self, *, limit: int, after: QueueOrder | None) -> Sequence[Ticket]:
        items, _, _ = await self._table.query(
            condition="PK = :queue",
            values={"queue": QUEUE},
            limit=limit,
            start=None if after is None else queue_key(after),
        )
        return [entity_of(Ticket, item) for item in items]

    async def count_waiting(self, *, before: Ticket | None = None) -> int:
        return await self._table.count(
            condition="PK = :queue" + (" AND SK < :before" if before else ""),
            values={"queue": QUEUE, "before": ticket_key(before)["SK"] if before else None},
            where="attribute_not_exists(sandbox_id)",
        )

    async def renew_tickets(self, tickets: Sequence[Ticket], *, asked_at: int) -> None:
        keys = [ticket_key(each) for each in tickets]
        change, values = "SET asked_at = :now", {"now": asked_at}
        await self._table.update_each(keys, change, values, slots=self._slots)
