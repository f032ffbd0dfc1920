"""API keys on SQLite or PostgreSQL."""

from sandyard.kit.sql.transitions import EntityTable
from sandyard.platform.api_keys.errors import KeyNameTakenError
from sandyard.platform.api_keys.model import AccountKey
from sandyard.platform.entities.sql import SqlListing, SqlOwnedStore
from sandyard.platform.schema.tables import api_keys

API_KEYS = EntityTable(AccountKey, api_keys)


class SqlKeyStore(SqlOwnedStore[AccountKey]):
    name_taken = KeyNameTakenError
    cursor_name = "account keys"
    listing = SqlListing(
        API_KEYS, searched=(api_keys.c.name, api_keys.c.description, api_keys.c.api_key)
    )
