"""API keys on SQLite or PostgreSQL."""

import sqlalchemy as sa

from sandyard.kit.paging import Page
from sandyard.kit.sql.entities import contains, find_entity, page_of_entities
from sandyard.kit.sql.transitions import EntityTable, SqlEntityStore
from sandyard.platform.api_keys.errors import KeyNameTakenError
from sandyard.platform.api_keys.model import AccountKey, KeyFilter, KeySort
from sandyard.platform.schema.tables import api_keys

API_KEYS = EntityTable(AccountKey, api_keys)
_key = api_keys.c
_ORDER = {
    KeySort.NEWEST: (_key.created_at, True),
    KeySort.OLDEST: (_key.created_at, False),
    KeySort.NAME: (_key.name, False),
    KeySort.NAME_REVERSED: (_key.name, True),
}


class SqlKeyStore(SqlEntityStore):
    name_taken = KeyNameTakenError

    async def find_key(self, account_id: str, key_id: str) -> AccountKey | None:
        this = _key.key_id == key_id
        return await find_entity(self._database, API_KEYS, *_of(account_id), this)

    async def page_of_keys(
        self,
        account_id: str,
        only: KeyFilter,
        *,
        sort: KeySort,
        limit: int,
        cursor: str | None,
    ) -> Page[AccountKey]:
        column, descending = _ORDER[sort]
        return await page_of_entities(
            self._database,
            API_KEYS,
            *_of(account_id),
            *_matching(only),
            order=(column, _key.id),
            descending=descending,
            listing=f"account keys {account_id} {only} {sort}",
            limit=limit,
            cursor=cursor,
        )


def _of(account_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (_key.user_account_id == account_id, _key.deleted_at.is_(None))


def _matching(only: KeyFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if only.search is not None:
        conditions.append(contains(only.search, _key.name, _key.description, _key.api_key))
    if only.is_active is not None:
        conditions.append(_key.is_active.is_(only.is_active))
    return conditions
