"""Sign-ups that wait for verification, on SQLite or PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from sandyard.kit.sql.entities import find_entities, find_entity
from sandyard.kit.sql.transitions import EntityTable, SqlEntityStore
from sandyard.platform.accounts.errors import AccountExistsError
from sandyard.platform.accounts.signups.model import PendingSignup, Taken
from sandyard.platform.schema.tables import pending_signups, users

SIGNUPS = EntityTable(PendingSignup, pending_signups)
_pending = pending_signups.c


class SqlSignupStore(SqlEntityStore):
    name_taken = AccountExistsError

    async def find_taken(self, *, email: str, username: str) -> Taken:
        lower = username.lower()
        statement = sa.select(users.c.email, users.c.username).where(
            sa.or_(users.c.email == email, sa.func.lower(users.c.username) == lower)
        )
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        return Taken(
            email=any(row.email == email for row in rows),
            username=any(row.username.lower() == lower for row in rows),
        )

    async def find_by_token(self, verification_token: str) -> PendingSignup | None:
        this = _pending.verification_token == verification_token
        return await find_entity(self._database, SIGNUPS, this)

    async def find_of_address(self, email: str, *, limit: int) -> Sequence[PendingSignup]:
        return await find_entities(
            self._database,
            SIGNUPS,
            _pending.email == email,
            limit=limit,
            order=_pending.id.desc(),
        )

    async def find_expired(self, *, now: datetime, limit: int) -> Sequence[PendingSignup]:
        return await find_entities(self._database, SIGNUPS, _pending.expires_at <= now, limit=limit)
