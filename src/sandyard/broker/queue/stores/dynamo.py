"""The queue for sandboxes on DynamoDB: one partition, in queue order."""

import asyncio
from collections.abc import Collection, Sequence

from sandyard.broker.queue.model import QueueOrder, Ticket
from sandyard.broker.stores.dynamo_entities import (
    QUEUE,
    queue_key,
    ticket_key,
    ticket_lookup_key,
    ticket_of,
)
from sandyard.kit.concurrency.parallel import for_each
from sandyard.kit.dynamo.client import ConditionFailedError
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item

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
            return await self._find_in_queue(set(keys))
        lookups = await self._table.get_many([ticket_lookup_key(*each) for each in keys])
        items = await self._table.get_many(
            [{"PK": QUEUE, "SK": each["ticket_sk"]} for each in lookups]
        )
        return [ticket_of(item) for item in items]

    async def _find_in_queue(self, keys: Collection[tuple[str, str]]) -> Sequence[Ticket]:
        found: list[Ticket] = []
        async for items in self._table.pages(condition="PK = :queue", values={"queue": QUEUE}):
            found += [each for each in map(ticket_of, items) if each.lease_key in keys]
        return found

    async def tickets(self, *, limit: int, after: QueueOrder | None) -> Sequence[Ticket]:
        items, _, _ = await self._table.query(
            condition="PK = :queue",
            values={"queue": QUEUE},
            limit=limit,
            start=None if after is None else queue_key(after),
        )
        return [ticket_of(item) for item in items]

    async def count_waiting(self, *, before: Ticket | None = None) -> int:
        total = 0
        start: Item | None = None
        while True:
            _, start, count = await self._table.query(
                condition="PK = :queue" + (" AND SK < :before" if before else ""),
                values={"queue": QUEUE, "before": ticket_key(before)["SK"] if before else None},
                where="attribute_not_exists(sandbox_id)",
                count_only=True,
                start=start,
            )
            total += count
            if start is None:
                return total

    async def renew_tickets(self, tickets: Sequence[Ticket], *, asked_at: int) -> None:
        async def renew_one(ticket: Ticket) -> None:
            try:
                await self._table.update(
                    ticket_key(ticket),
                    "SET asked_at = :now",
                    {"now": asked_at},
                    condition="attribute_exists(PK)",
                )
            except ConditionFailedError:
                return

        await for_each(tickets, renew_one, slots=self._slots)
