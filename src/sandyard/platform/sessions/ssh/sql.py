"""Host keys on SQLite or PostgreSQL."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import exc

from sandyard.kit.sql.database import Database
from sandyard.platform.schema.tables import ssh_host_keys
from sandyard.platform.sessions.ssh.model import HostKey

_ALL = sa.select(ssh_host_keys).order_by(ssh_host_keys.c.generation)


class SqlHostKeyStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self) -> Sequence[HostKey]:
        rows = await self._database.read(lambda connection: connection.execute(_ALL).all())
        return [HostKey(row.generation, row.encrypted, row.created_at) for row in rows]

    async def add(self, key: HostKey) -> None:
        statement = ssh_host_keys.insert().values(
            generation=key.generation,
            encrypted=key.encrypted,
            created_at=key.created_at,
        )
        try:
            await self._database.write(lambda connection: connection.execute(statement))
        except exc.IntegrityError:
            return
