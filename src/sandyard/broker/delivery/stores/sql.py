"""Webhooks, positions of sinks and delivery attempts in SQL."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from functools import partial

import sqlalchemy as sa

from sandyard.broker.delivery.model import Attempt, StreamState, Webhook
from sandyard.broker.stores.tables import WEBHOOKS, attempts, streams, webhooks
from sandyard.kit.paging import Page
from sandyard.kit.sql.database import Database, insert_or_ignore, insert_or_update
from sandyard.kit.sql.entities import find_entities, find_entity, page_of

_MOST_WEBHOOKS = 1000


class SqlDeliveryStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_webhook(self, webhook_id: str) -> Webhook | None:
        return await find_entity(self._database, WEBHOOKS, webhooks.c.webhook_id == webhook_id)

    async def webhooks(self) -> Sequence[Webhook]:
        order = webhooks.c.webhook_id
        return await find_entities(self._database, WEBHOOKS, limit=_MOST_WEBHOOKS, order=order)

    async def find_stream(self, sink: str, part: str) -> StreamState | None:
        found = [each for each in await self.streams(sink) if each.part == part]
        return found[0] if found else None

    async def streams(self, sink: str) -> Sequence[StreamState]:
        statement = sa.select(streams).where(streams.c.sink == sink).order_by(streams.c.part)
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        names = [each.name for each in fields(StreamState)]
        return [StreamState(**{name: getattr(row, name) for name in names}) for row in rows]

    async def save_stream(self, state: StreamState) -> None:
        row, key = asdict(state), ["sink", "part"]
        await self._database.write(partial(insert_or_update, table=streams, row=row, key=key))

    async def forget_sink(self, sink: str) -> None:
        def work(connection: sa.Connection) -> None:
            connection.execute(streams.delete().where(streams.c.sink == sink))
            connection.execute(attempts.delete().where(attempts.c.webhook_id == sink))

        await self._database.write(work)

    async def log_attempts(self, attempts_made: Sequence[Attempt]) -> None:
        rows = [asdict(each) for each in attempts_made]
        await self._database.write(
            lambda connection: connection.execute(insert_or_ignore(connection, attempts), rows)
        )

    async def attempts(self, webhook_id: str, *, limit: int, cursor: str | None) -> Page[Attempt]:
        rows, next_cursor = await page_of(
            self._database,
            sa.select(attempts).where(attempts.c.webhook_id == webhook_id),
            (attempts.c.at_ms, attempts.c.attempt_id),
            listing=f"attempts {webhook_id}",
            limit=limit,
            cursor=cursor,
        )
        names = [each.name for each in fields(Attempt)]
        found = [Attempt(**{name: getattr(row, name) for name in names}) for row in rows]
        return Page(found, next_cursor)

    async def drop_attempts(self, *, before_ms: int) -> None:
        statement = attempts.delete().where(attempts.c.at_ms < before_ms)
        await self._database.write(lambda connection: connection.execute(statement))
