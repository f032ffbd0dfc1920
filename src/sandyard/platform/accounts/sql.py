"""Accounts on SQLite or PostgreSQL."""

from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from sandyard.kit.paging import Page
from sandyard.kit.sql import Database
from sandyard.kit.sql_paging import page_of
from sandyard.platform.accounts.errors import AccountExistsError, AccountNotFoundError
from sandyard.platform.accounts.model import (
    Account,
    AccountFilter,
    AccountSort,
    Decide,
    ProfileChanges,
)
from sandyard.platform.notifications.model import Notice
from sandyard.platform.notifications.sql import notify
from sandyard.platform.principal import Role
from sandyard.platform.projects.model import default_project
from sandyard.platform.projects.sql import insert_project
from sandyard.platform.tables import users

_user = users.c
_ACCOUNT = tuple(_user[field.name] for field in fields(Account))
_ORDER = {
    AccountSort.NEWEST: (_user.created_at, True),
    AccountSort.OLDEST: (_user.created_at, False),
    AccountSort.EMAIL: (_user.email, False),
    AccountSort.USERNAME: (_user.username, False),
}


class SqlAccountStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_account(self, account: Account, *, project_id: str) -> None:
        try:
            await self._database.write(
                lambda connection: insert_account(connection, account, project_id=project_id)
            )
        except exc.IntegrityError as error:
            raise AccountExistsError from error

    async def find_account(self, account_id: str) -> Account | None:
        return await self._find(_user.account_id == account_id)

    async def find_by_login(self, login: str) -> Account | None:
        lower = login.lower()
        # A user name holds no @, so that the two never mean different accounts.
        return await self._find(
            _user.email == lower if "@" in lower else sa.func.lower(_user.username) == lower
        )

    async def note_login(
        self, account_id: str, *, now: datetime, password_hash: str | None
    ) -> None:
        values: dict[str, Any] = {"last_login": now}
        if password_hash is not None:
            values["password_hash"] = password_hash
        statement = users.update().where(_user.account_id == account_id).values(values)
        await self._database.write(lambda connection: connection.execute(statement))

    async def set_reset_token(
        self, email: str, *, reset_token: str, now: datetime, expires_at: datetime
    ) -> Account | None:
        return await self._update(
            _user.email == email,
            _user.is_active,
            reset_token=reset_token,
            reset_token_expiry=expires_at,
            last_password_reset_request=now,
        )

    async def reset_password(
        self, reset_token: str, *, password_hash: str, now: datetime, notice: Notice
    ) -> Account | None:
        return await self._set_password(
            _user.reset_token == reset_token,
            _user.reset_token_expiry > now,
            _user.is_active,
            password_hash=password_hash,
            now=now,
            notice=notice,
        )

    async def change_password(
        self, account_id: str, *, password_hash: str, now: datetime, notice: Notice
    ) -> None:
        await self._set_password(
            _user.account_id == account_id, password_hash=password_hash, now=now, notice=notice
        )

    async def end_logins(self, account_id: str, *, now: datetime) -> None:
        await self._update(
            _user.account_id == account_id,
            token_version=_user.token_version + 1,
            updated_at=now,
        )

    async def update_profile(
        self, account_id: str, changes: ProfileChanges, *, now: datetime
    ) -> Account:
        account = await self._update(_user.account_id == account_id, **changes, updated_at=now)
        if account is None:
            raise AccountNotFoundError
        return account

    async def page_of_accounts(
        self, only: AccountFilter, *, sort: AccountSort, limit: int, cursor: str | None
    ) -> Page[Account]:
        column, descending = _ORDER[sort]
        rows, next_cursor = await page_of(
            self._database,
            sa.select(*_ACCOUNT, _user.id).where(*_matching(only)),
            (column, _user.id),
            listing=f"accounts {only} {sort}",
            limit=limit,
            cursor=cursor,
            descending=descending,
        )
        return Page([account_of(row) for row in rows], next_cursor)

    async def decide(self, account_id: str, decide: Decide, *, now: datetime) -> Account | None:
        # Every admin's row is locked, in one order, so that two decisions about admins can't both
        # count on the other's admin staying.
        admins = (
            sa.select(_user.account_id)
            .where(_user.role == Role.ADMIN, _user.is_active)
            .order_by(_user.id)
            .with_for_update()
        )
        the_account = sa.select(*_ACCOUNT).where(_user.account_id == account_id).with_for_update()

        def work(connection: sa.Connection) -> Account | None:
            others = [each for each in connection.scalars(admins) if each != account_id]
            row = connection.execute(the_account).first()
            if row is None:
                return None
            decided = decide(account_of(row), len(others))
            return _update(
                connection,
                _user.account_id == account_id,
                role=decided.role,
                is_active=decided.is_active,
                token_version=decided.token_version,
                updated_at=now,
            )

        return await self._database.write(work)

    async def _set_password(
        self,
        *conditions: sa.ColumnElement[bool],
        password_hash: str,
        now: datetime,
        notice: Notice,
    ) -> Account | None:
        def work(connection: sa.Connection) -> Account | None:
            account = _update(
                connection,
                *conditions,
                password_hash=password_hash,
                token_version=_user.token_version + 1,
                reset_token=None,
                reset_token_expiry=None,
                updated_at=now,
            )
            if account is not None:
                notify(connection, [account.account_id], notice, now=now)
            return account

        return await self._database.write(work)

    async def _find(self, condition: sa.ColumnElement[bool]) -> Account | None:
        statement = sa.select(*_ACCOUNT).where(condition)
        row = await self._database.read(lambda connection: connection.execute(statement).first())
        return None if row is None else account_of(row)

    async def _update(self, *conditions: sa.ColumnElement[bool], **values: Any) -> Account | None:
        return await self._database.write(
            lambda connection: _update(connection, *conditions, **values)
        )


def insert_account(connection: sa.Connection, account: Account, *, project_id: str) -> None:
    """The account and the project that it begins with."""
    connection.execute(users.insert().values(asdict(account)))
    project = default_project(
        project_id=project_id, owner_account_id=account.account_id, now=account.created_at
    )
    insert_project(connection, project)


def account_of(row: Any) -> Account:
    values = {field.name: getattr(row, field.name) for field in fields(Account)}
    return Account(**(values | {"role": Role(row.role)}))


def _update(
    connection: sa.Connection, *conditions: sa.ColumnElement[bool], **values: Any
) -> Account | None:
    statement = users.update().where(*conditions).values(values).returning(*_ACCOUNT)
    row = connection.execute(statement).first()
    return None if row is None else account_of(row)


def _matching(only: AccountFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if only.search is not None:
        searched = (_user.email, _user.username, _user.full_name, _user.account_id)
        conditions.append(
            sa.or_(*(column.icontains(only.search, autoescape=True) for column in searched))
        )
    if only.role is not None:
        conditions.append(_user.role == only.role)
    if only.is_active is not None:
        conditions.append(_user.is_active.is_(only.is_active))
    return conditions
