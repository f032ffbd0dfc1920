"""Webhooks, positions of sinks and delivery attempts on DynamoDB, as items of the pool's table.

Webhooks are one partition, a sink's streams another, and so are the attempts of each webhook; none
of them has index keys.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sandyard.broker.delivery.model import Attempt, StreamState, Webhook
from sandyard.broker.stores.dynamo_entities import (
    WEBHOOK,
    entities_in,
    entity_of,
    find_entity,
    webhook_key,
)
from sandyard.kit.concurrency.tasks import for_each
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor

_PARALLEL = 16


class DynamoDeliveryStore:
    def __init__(self, table: Table, *, attempts_kept_sec: float) -> None:
        self._table = table
        self._attempts_kept_sec = attempts_kept_sec
        self._slots = asyncio.Semaphore(_PARALLEL)

    async def find_webhook(self, webhook_id: str) -> Webhook | None:
        return await find_entity(self._table, Webhook, webhook_key(webhook_id))

    async def webhooks(self) -> Sequence[Webhook]:
        return await entities_in(self._table, Webhook, WEBHOOK)

    async def find_stream(self, sink: str, part: str) -> StreamState | None:
        return await find_entity(self._table, StreamState, _stream_key(sink, part))

    async def streams(self, sink: str) -> Sequence[StreamState]:
        return await entities_in(self._table, StreamState, f"SINK#{sink}")

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
        before = None if cursor is None else _attempt_id(decode_cursor(listing, cursor))
        items, _, _ = await self._table.query(
            condition="PK = :webhook" + ("" if before is None else " AND SK < :before"),
            values={"webhook": f"ATTEMPT#{webhook_id}", "before": before},
            limit=limit + 1,
            forward=False,
        )
        found = [entity_of(Attempt, item["attempt"]) for item in items[:limit]]
        if len(items) <= limit:
            return Page(found, None)
        return Page(found, encode_cursor(listing, [found[-1].attempt_id]))

    async def drop_attempts(self, *, before_ms: int) -> None:
        """DynamoDB removes them by their `ttl`."""


def _stream_key(sink: str, part: str) -> Item:
    return {"PK": f"SINK#{sink}", "SK": part}


def _attempt_id(position: list[Any]) -> str:
    match position:
        case [str() as attempt_id]:
            return attempt_id
        case _:
            raise InvalidCursorError
