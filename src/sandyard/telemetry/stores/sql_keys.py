"""API keys on SQLite or PostgreSQL."""

from collections.abc import AsyncIterator, Sequence

import sqlalchemy as sa

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.clock import Clock
from sandyard.kit.paging import Page
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import all_entities, find_entity, page_of
from sandyard.kit.sql.events import EventWriter
from sandyard.kit.sql.transitions import EntityTable, SqlTransitions
from sandyard.telemetry.model import ApiKey
from sandyard.telemetry.stores.tables import api_keys, events

KEYS = EntityTable(ApiKey, api_keys)
_column = api_keys.c
_created_text = sa.type_coerce(_column.created_at, sa.String).label("created_text")
"""The value in cursors."""


class SqlKeyStore:
    def __init__(self, database: Database, *, clock: Clock | None = None) -> None:
        self._database = database
        self._transitions = SqlTransitions(database, [KEYS], EventWriter(events, clock))

    async def apply(self, transition: Transition[ApiKey]) -> bool:
        return await self._transitions.apply(transition)

    async def find_key(self, key_id: str) -> ApiKey | None:
        return await find_entity(self._database, KEYS, _column.key_id == key_id)

    async def find_key_by_hash(self, api_key_hash: str) -> ApiKey | None:
        return await find_entity(self._database, KEYS, _column.api_key_hash == api_key_hash)

    async def page_of_keys(self, *, limit: int, cursor: str | None) -> Page[ApiKey]:
        rows, next_cursor = await page_of(
            self._database,
            sa.select(api_keys, _created_text),
            (_created_text, _column.key_id),
            listing="api keys",
            limit=limit,
            cursor=cursor,
        )
        return Page([KEYS.entity_of(row) for row in rows], next_cursor)

    async def touch_key(self, key_id: str, *, used_at: int, unless_after: int) -> None:
        is_due = sa.or_(_column.last_used_at.is_(None), _column.last_used_at <= unless_after)
        used = api_keys.update().where(_column.key_id == key_id, is_due)
        statement = used.values(last_used_at=used_at)
        await self._database.write(lambda connection: connection.execute(statement))

    def all_keys(self) -> AsyncIterator[Sequence[ApiKey]]:
        return all_entities(self._database, KEYS)
