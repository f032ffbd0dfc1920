"""API keys on SQLite or PostgreSQL."""

from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from sandyard.kit.paging import Page
from sandyard.kit.sql import Database
from sandyard.kit.sql_paging import page_of
from sandyard.telemetry.model import ApiKey
from sandyard.telemetry.stores.tables import api_keys

_column = api_keys.c


class SqlKeyStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_key(self, key: ApiKey) -> None:
        statement = api_keys.insert().values(asdict(key))
        await self._database.write(lambda connection: connection.execute(statement))

    async def find_key(self, api_key_hash: str) -> ApiKey | None:
        statement = sa.select(api_keys).where(_column.api_key_hash == api_key_hash)
        row = await self._database.read(lambda connection: connection.execute(statement).first())
        return None if row is None else _key(row)

    async def page_of_keys(self, *, limit: int, cursor: str | None) -> Page[ApiKey]:
        rows, next_cursor = await page_of(
            self._database,
            sa.select(api_keys),
            (_column.created_at, _column.key_id),
            listing="api keys",
            limit=limit,
            cursor=cursor,
        )
        return Page([_key(row) for row in rows], next_cursor)

    async def revoke_key(self, key_id: str) -> ApiKey | None:
        statement = (
            api_keys.update()
            .where(_column.key_id == key_id)
            .values(is_active=False)
            .returning(*_column)
        )
        row = await self._database.write(lambda connection: connection.execute(statement).first())
        return None if row is None else _key(row)

    async def touch_key(self, key_id: str, *, now: str, unless_after: str) -> None:
        is_due = sa.or_(_column.last_used_at.is_(None), _column.last_used_at <= unless_after)
        statement = (
            api_keys.update().where(_column.key_id == key_id, is_due).values(last_used_at=now)
        )
        await self._database.write(lambda connection: connection.execute(statement))


def _key(row: Any) -> ApiKey:
    return ApiKey(
        key_id=row.key_id,
        api_key_hash=row.api_key_hash,
        created_at=row.created_at,
        is_active=row.is_active,
        description=row.description,
        last_used_at=row.last_used_at,
    )
