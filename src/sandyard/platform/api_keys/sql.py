"""API keys on SQLite or PostgreSQL."""

from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from sandyard.kit.paging import Page
from sandyard.kit.sql import Database
from sandyard.kit.sql_paging import page_of
from sandyard.platform.api_keys.errors import KeyNameTakenError
from sandyard.platform.api_keys.model import AccountKey, KeyChanges, KeyFilter, KeySort
from sandyard.platform.notifications.model import Notice
from sandyard.platform.notifications.sql import notify
from sandyard.platform.tables import api_keys

_key = api_keys.c
_KEY = tuple(_key[field.name] for field in fields(AccountKey))
_ORDER = {
    KeySort.NEWEST: (_key.created_at, True),
    KeySort.OLDEST: (_key.created_at, False),
    KeySort.NAME: (_key.name, False),
    KeySort.NAME_REVERSED: (_key.name, True),
}


class SqlKeyStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_key(self, key: AccountKey, *, key_hash: str, notice: Notice) -> None:
        def work(connection: sa.Connection) -> None:
            connection.execute(api_keys.insert().values(asdict(key) | {"key_hash": key_hash}))
            notify(connection, [key.user_account_id], notice, now=key.created_at)

        try:
            await self._database.write(work)
        except exc.IntegrityError as error:
            raise KeyNameTakenError from error

    async def find_key(self, account_id: str, key_id: str) -> AccountKey | None:
        statement = sa.select(*_KEY).where(*_of(account_id), _key.key_id == key_id)
        row = await self._database.read(lambda connection: connection.execute(statement).first())
        return None if row is None else _key_of(row)

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
        rows, next_cursor = await page_of(
            self._database,
            sa.select(*_KEY, _key.id).where(*_of(account_id), *_matching(only)),
            (column, _key.id),
            listing=f"account keys {account_id} {only} {sort}",
            limit=limit,
            cursor=cursor,
            descending=descending,
        )
        return Page([_key_of(row) for row in rows], next_cursor)

    async def update_key(
        self, account_id: str, key_id: str, changes: KeyChanges, *, now: datetime
    ) -> AccountKey | None:
        statement = (
            api_keys.update()
            .where(*_of(account_id), _key.key_id == key_id)
            .values(**changes, updated_at=now)
            .returning(*_KEY)
        )
        try:
            row = await self._database.write(
                lambda connection: connection.execute(statement).first()
            )
        except exc.IntegrityError as error:
            raise KeyNameTakenError from error
        return None if row is None else _key_of(row)

    async def delete_key(self, account_id: str, key_id: str, *, now: datetime) -> bool:
        statement = (
            api_keys.update()
            .where(*_of(account_id), _key.key_id == key_id)
            .values(is_active=False, deleted_at=now, updated_at=now)
        )
        return await self._database.write(
            lambda connection: connection.execute(statement).rowcount == 1
        )


def _of(account_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (_key.user_account_id == account_id, _key.deleted_at.is_(None))


def _matching(only: KeyFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if only.search is not None:
        searched = (_key.name, _key.description, _key.api_key)
        conditions.append(
            sa.or_(*(column.icontains(only.search, autoescape=True) for column in searched))
        )
    if only.is_active is not None:
        conditions.append(_key.is_active.is_(only.is_active))
    return conditions


def _key_of(row: Any) -> AccountKey:
    return AccountKey(**{field.name: getattr(row, field.name) for field in fields(AccountKey)})
