"""Accounts on SQLite or PostgreSQL."""

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from datetime import datetime

import sqlalchemy as sa

from sandyard.kit.paging import Page
from sandyard.kit.sql.entities import find_entity
from sandyard.kit.sql.transitions import EntityTable, SqlEntityStore
from sandyard.platform.access.principal import Role
from sandyard.platform.accounts.errors import AccountExistsError
from sandyard.platform.accounts.model import Account, AccountFilter, OtherAdmins
from sandyard.platform.entities.model import Listing
from sandyard.platform.entities.sql import SqlListing
from sandyard.platform.schema.tables import users

ACCOUNTS = EntityTable(Account, users)
_user = users.c
_LISTING = SqlListing(
    ACCOUNTS, searched=(_user.email, _user.username, _user.full_name, _user.account_id)
)


def read_other_admins(connection: sa.Connection, about: OtherAdmins) -> OtherAdmins:
    others = sa.exists().where(
        _user.role == Role.ADMIN, _user.is_active, _user.account_id != about.account_id
    )
    return OtherAdmins(about.account_id, bool(connection.scalar(sa.select(others))))


class SqlAccountStore(SqlEntityStore):
    name_taken = AccountExistsError

    async def find_account(self, account_id: str) -> Account | None:
        return await find_entity(self._database, ACCOUNTS, _user.account_id == account_id)

    async def find_by_login(self, login: str) -> Account | None:
        lower = login.lower()
        # A user name contains no @, so the two never mean different accounts.
        this = _user.email == lower if "@" in lower else sa.func.lower(_user.username) == lower
        return await find_entity(self._database, ACCOUNTS, this, _user.deleted_at.is_(None))

    async def find_by_verification_token(self, verification_token: str) -> Account | None:
        this = _user.verification_token == verification_token
        return await find_entity(self._database, ACCOUNTS, this)

    async def find_by_reset_token(self, reset_token: str) -> Account | None:
        return await find_entity(self._database, ACCOUNTS, _user.reset_token == reset_token)

    async def deactivated_accounts(self, account_ids: Collection[str]) -> AbstractSet[str]:
        statement = sa.select(_user.account_id).where(
            _user.account_id.in_(account_ids), _user.is_active.is_(False)
        )
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return {row.account_id for row in rows}

    async def page_of_accounts(self, listing: Listing[AccountFilter]) -> Page[Account]:
        exists = _user.deleted_at.is_(None)
        return await _LISTING.page(self._database, listing, exists, name="accounts")

    async def touch_login(self, account_id: str, *, now: datetime) -> None:
        statement = users.update().where(_user.account_id == account_id).values(last_login=now)
        await self._database.write(lambda connection: connection.execute(statement))
