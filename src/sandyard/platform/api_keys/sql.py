"""API keys on SQLite or PostgreSQL."""

import sqlalchemy as sa

from sandyard.kit.paging import Page
from sandyard.kit.sql.entities import find_entity
from sandyard.kit.sql.transitions import EntityTable, SqlEntityStore
from sandyard.platform.api_keys.errors import KeyNameTakenError
from sandyard.platform.api_keys.model import AccountKey, KeyFilter
from sandyard.platform.listings.model import Listing
from sandyard.platform.listings.sql import SqlListing
from sandyard.platform.schema.tables import api_keys

API_KEYS = EntityTable(AccountKey, api_keys)
_key = api_keys.c
_LISTING = SqlListing(API_KEYS, searched=(_key.name, _key.description, _key.api_key))


class SqlKeyStore(SqlEntityStore):
    name_taken = KeyNameTakenError

    async def find_key(self, account_id: str, key_id: str) -> AccountKey | None:
        this = _key.key_id == key_id
        return await find_entity(self._database, API_KEYS, *_of(account_id), this)

    async def page_of_keys(self, account_id: str, listing: Listing[KeyFilter]) -> Page[AccountKey]:
        name = f"account keys {account_id}"
        return await _LISTING.page(self._database, listing, *_of(account_id), name=name)


def _of(account_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (_key.user_account_id == account_id, _key.deleted_at.is_(None))
