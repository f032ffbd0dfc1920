"""The SQL engine of a part that is built after the port is open."""

from pathlib import Path

import sqlalchemy as sa

from sandyard.kit.clock import SystemClock
from sandyard.kit.sql.job_leases import SqlJobLeases
from sandyard.kit.sql.migrations import Migrations
from sandyard.settings import Settings
from sandyard.wiring.engines import embedded_database, job_runner, open_part_database


class PartEngine:
    """What must exist of a part before a server is ready; a `Checked`. The part, once built, uses
    its database."""

    def __init__(
        self, settings: Settings, data_dir: Path, migrations: Migrations, jobs: sa.Table
    ) -> None:
        database = open_part_database(settings, data_dir, migrations.part)
        self.name, self.engine = migrations.part, database.name
        self.database = database
        self._migrations = migrations
        self._embedded = embedded_database(settings, database, migrations, jobs)
        self._runner = job_runner(settings, SqlJobLeases(database, jobs), SystemClock())

    async def prepare(self) -> None:
        """Upgrade an embedded engine to the newest schema."""
        if self._embedded is not None:
            await self._embedded.upgrade()

    async def check(self) -> None:
        await self.database.check()
        await self._migrations.require_head(self.database)

    async def check_writes(self) -> None:
        await self._runner.check_writes()
