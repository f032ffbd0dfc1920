"""Sign-ups that wait for their mail to be read, on SQLite or PostgreSQL."""

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from sandyard.kit.sql import Database
from sandyard.platform.accounts.errors import AccountExistsError
from sandyard.platform.accounts.model import Account, PendingSignup, Taken, new_account
from sandyard.platform.accounts.sql import insert_account
from sandyard.platform.tables import pending_signups, users

_pending = pending_signups.c
_SIGNUP = tuple(_pending[field.name] for field in fields(PendingSignup))


class SqlSignupStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_signup(self, signup: PendingSignup) -> Taken:
        def work(connection: sa.Connection) -> Taken:
            connection.execute(pending_signups.insert().values(asdict(signup)))
            return _taken(connection, signup.email, signup.username)

        return await self._database.write(work)

    async def renew_signups(
        self, email: str, *, verification_tokens: Sequence[str], now: datetime, expires_at: datetime
    ) -> Sequence[PendingSignup]:
        newest = (
            sa.select(*_SIGNUP)
            .where(_pending.email == email, _pending.expires_at > now)
            .order_by(_pending.id.desc())
            .with_for_update()
        )

        def work(connection: sa.Connection) -> Sequence[PendingSignup]:
            waiting = [
                signup
                for signup in map(_signup, connection.execute(newest).all())
                if not any(asdict(_taken(connection, signup.email, signup.username)).values())
            ]
            renewed = [
                replace(signup, verification_token=token, expires_at=expires_at)
                for signup, token in zip(waiting, verification_tokens, strict=False)
            ]
            for signup in renewed:
                connection.execute(
                    pending_signups.update()
                    .where(_pending.signup_id == signup.signup_id)
                    .values(
                        verification_token=signup.verification_token, expires_at=signup.expires_at
                    )
                )
            return renewed

        return await self._database.write(work)

    async def verify_signup(
        self, verification_token: str, *, account_id: str, project_id: str, now: datetime
    ) -> Account | None:
        address = (
            sa.select(_pending.email)
            .where(_pending.verification_token == verification_token)
            .scalar_subquery()
        )
        # All sign-ups of the address are locked, in one order: of callers that hold different
        # tokens of it the second then finds nothing, instead of waiting for the first in a circle.
        of_address = (
            sa.select(*_SIGNUP)
            .where(_pending.email == address)
            .order_by(_pending.id)
            .with_for_update()
        )

        def work(connection: sa.Connection) -> Account | None:
            for signup in map(_signup, connection.execute(of_address).all()):
                if signup.verification_token == verification_token:
                    return _use(
                        connection, signup, account_id=account_id, project_id=project_id, now=now
                    )
            return None

        try:
            return await self._database.write(work)
        except exc.IntegrityError as error:
            raise AccountExistsError from error

    async def remove_expired_signups(self, *, now: datetime) -> int:
        statement = pending_signups.delete().where(_pending.expires_at <= now)
        return await self._database.write(lambda connection: connection.execute(statement).rowcount)


def _use(
    connection: sa.Connection,
    signup: PendingSignup,
    *,
    account_id: str,
    project_id: str,
    now: datetime,
) -> Account | None:
    taken = _taken(connection, signup.email, signup.username)
    if signup.expires_at <= now or taken.email or taken.username:
        return None
    account = new_account(
        account_id=account_id,
        email=signup.email,
        username=signup.username,
        full_name=signup.full_name,
        password_hash=signup.password_hash,
        now=now,
    )
    insert_account(connection, account, project_id=project_id)
    connection.execute(pending_signups.delete().where(_pending.email == signup.email))
    return account


def _taken(connection: sa.Connection, email: str, username: str) -> Taken:
    lower = username.lower()
    statement = sa.select(users.c.email, users.c.username).where(
        sa.or_(users.c.email == email, sa.func.lower(users.c.username) == lower)
    )
    rows = connection.execute(statement).all()
    return Taken(
        email=any(row.email == email for row in rows),
        username=any(row.username.lower() == lower for row in rows),
    )


def _signup(row: Any) -> PendingSignup:
    return PendingSignup(
        **{field.name: getattr(row, field.name) for field in fields(PendingSignup)}
    )
