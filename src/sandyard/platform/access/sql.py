"""Credential lookup on SQLite or PostgreSQL."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from sandyard.kit.concurrency.tasks import SingleFlight
from sandyard.kit.sql.database import Database
from sandyard.platform.access.credentials import AccountCredential, KeyCredential
from sandyard.platform.access.principal import Role, Scope
from sandyard.platform.schema.tables import api_keys, users

_ACCOUNT = (users.c.account_id, users.c.role, users.c.is_active, users.c.token_version)
_account = sa.select(*_ACCOUNT).where(users.c.account_id == sa.bindparam("account_id"))
_any_key = (
    sa.select(
        *_ACCOUNT,
        api_keys.c.key_id,
        api_keys.c.is_active.label("key_is_active"),
        api_keys.c.last_used_at,
        api_keys.c.scope,
        api_keys.c.expires_at,
    )
    .join_from(api_keys, users, api_keys.c.user_account_id == users.c.account_id)
    .where(api_keys.c.deleted_at.is_(None))
)
_key = _any_key.where(api_keys.c.key_hash == sa.bindparam("key_hash"))
_key_by_id = _any_key.where(api_keys.c.key_id == sa.bindparam("key_id"))


class SqlCredentialLookup:
    """Many callers often have the same key. Concurrent ones share a lookup, and the write that
    records its use."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._keys: SingleFlight[KeyCredential | None] = SingleFlight()
        self._touches: SingleFlight[None] = SingleFlight()

    async def find_account(self, account_id: str) -> AccountCredential | None:
        row = await self._database.read(
            lambda connection: connection.execute(_account, {"account_id": account_id}).first()
        )
        return None if row is None else _account_credential(row)

    async def find_key(self, key_hash: str) -> KeyCredential | None:
        return await self._keys.run(key_hash, lambda: self._find_key(_key, key_hash=key_hash))

    async def find_key_by_id(self, key_id: str) -> KeyCredential | None:
        return await self._find_key(_key_by_id, key_id=key_id)

    async def _find_key(self, statement: sa.Select[Any], **values: str) -> KeyCredential | None:
        row = await self._database.read(
            lambda connection: connection.execute(statement, values).first()
        )
        return None if row is None else _key_credential(row)

    async def with_keys(
        self, account_ids: Collection[str]
    ) -> Sequence[tuple[AccountCredential, Sequence[KeyCredential]]]:
        is_named = users.c.account_id.in_(account_ids)

        def work(
            connection: sa.Connection,
        ) -> Sequence[tuple[AccountCredential, Sequence[KeyCredential]]]:
            keys: dict[str, list[KeyCredential]] = defaultdict(list)
            for row in connection.execute(_any_key.where(is_named)):
                keys[row.account_id].append(_key_credential(row))
            accounts = connection.execute(sa.select(*_ACCOUNT).where(is_named))
            return [(_account_credential(row), keys[row.account_id]) for row in accounts]

        return await self._database.read(work)

    async def touch_key(self, key_id: str, *, now: datetime, unless_after: datetime) -> None:
        await self._touches.run(key_id, lambda: self._touch(key_id, now, unless_after))

    async def _touch(self, key_id: str, now: datetime, unless_after: datetime) -> None:
        last = api_keys.c.last_used_at
        statement = (
            api_keys.update()
            .where(api_keys.c.key_id == key_id, sa.or_(last.is_(None), last <= unless_after))
            .values(last_used_at=now)
        )
        await self._database.write(lambda connection: connection.execute(statement))


def _key_credential(row: Any) -> KeyCredential:
    return KeyCredential(
        _account_credential(row),
        row.key_id,
        row.key_is_active,
        row.last_used_at,
        Scope(row.scope),
        row.expires_at,
    )


def _account_credential(row: Any) -> AccountCredential:
    return AccountCredential(row.account_id, Role(row.role), row.is_active, row.token_version)
