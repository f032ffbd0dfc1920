"""Webhooks, positions of sinks and delivery attempts on DynamoDB, as items of the pool's table.

Webhooks are one partition, a sink's streams another, and so are the attempts of each webhook; none
of them has index keys.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

from sandyard.broker.delivery.model import Attempt, StreamState, Webhook
from sandyard.broker.stores import dynamo_entities
from sandyard.kit.concurrency.tasks import for_each
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item
from sandyard.kit.paging import Page, page_up_to, position_in

_PARALLEL = 16


class DynamoDeliveryStore:
    def __init__(self, table: Table, *, attempts_kept_sec: float) -> None:
        self._table = table
        self._attempts_kept_sec = attempts_kept_sec
        self._slots = asyncio.Semaphore(_PARALLEL)

    async def find_webhook(self, webhook_id: str) -> Webhook | None:
        return await dynamo_entities.find_entity(
            self._table, Webhook, dynamo_entities.webhook_key(webhook_id)
        )

    async def webhooks(self) -> Sequence[Webhook]:
        return await dynamo_entities.entities_in(self._table, Webhook, dynamo_entities.WEBHOOK)

    async def find_stream(self, sink: str, part: str) -> StreamState | None:
        return await dynamo_entities.find_entity(self._table, StreamState, _stream_key(sink, part))

    async def streams(self, sink: str) -> Sequence[StreamState]:
        return await dynamo_entities.entities_in(self._table, StreamState, f"SINK#{sink}")

    async def save_stream(self, state: StreamState) -> None:
        await self._table.put({**_stream_key(state.sink, state.part), **asdict(state)})

    async def forget_sink(self, sink: str) -> None:
        """Attempts expire by their `ttl`."""
        keys = [_stream_key(sink, each.part) for each in await self.streams(sink)]
        await for_each(keys, self._table.delete, slots=self._slots)

    async def log_attempts(self, attempts: Sequence[Attempt]) -> None:
        async def put(attempt: Attempt) -> None:
            key = {"PK": f"ATTEMPT#{attempt.webhook_id}", "SK": attempt.attempt_id}
            kept_until = int(attempt.at_ms / 1000 + self._attempts_kept_sec)
            # Nested in one attribute, because `status` is the key of an index.
            await self._table.put({**key, "attempt": asdict(attempt), "ttl": kept_until})

        await for_each(attempts, put, slots=self._slots)

    async def attempts(self, webhook_id: str, *, limit: int, cursor: str | None) -> Page[Attempt]:
        listing = f"attempts {webhook_id}"
        last = position_in(listing, cursor, str)
        items, _, _ = await self._table.query(
            condition="PK = :webhook" + ("" if last is None else " AND SK < :last"),
            values={"webhook": f"ATTEMPT#{webhook_id}", "last": None if last is None else last[0]},
            limit=limit + 1,
            forward=False,
        )
        found = [dynamo_entities.entity_of(Attempt, item["attempt"]) for item in items]
        return page_up_to(limit, found, listing, lambda attempt: [attempt.attempt_id])

    async def drop_attempts(self, *, before_ms: int) -> None:
        """DynamoDB removes them by their `ttl`."""


def _stream_key(sink: str, part: str) -> Item:
    return {"PK": f"SINK#{sink}", "SK": part}
