"""A part's embedded database, used by one process exclusively."""

from dataclasses import dataclass

import sqlalchemy as sa

from sandyard.kit.sql.database import Database
from sandyard.kit.sql.job_leases import SqlJobLeases
from sandyard.kit.sql.migrations import Migrations


@dataclass(frozen=True, slots=True)
class EmbeddedDatabase:
    database: Database
    migrations: Migrations
    jobs: sa.Table
    """The table of job leases."""

    async def prepare(self) -> None:
        """Upgrade to the newest schema, and release the jobs of a process that died."""
        await self.upgrade()
        await SqlJobLeases(self.database, self.jobs).forget_holders()

    async def upgrade(self) -> None:
        """Upgrade to the newest schema; a newer one is left unchanged."""
        current = await self.migrations.current(self.database)
        if current is None or current < self.migrations.head:
            await self.migrations.upgrade(self.database)
