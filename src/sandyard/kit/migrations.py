"""Schema versions of a part: its numbered Alembic scripts, run on any `Database`.

Scripts are files like `0001_pool.py`, so the newest version is known without importing Alembic.
A whole upgrade is one transaction: it happens or it does not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql import Database

_VERSION_TABLE = "schema_version"


@dataclass(frozen=True, slots=True)
class Migrations:
    """The schema of `part`: where its scripts lie and how it is brought to a version."""

    part: str
    scripts: Path

    @property
    def head(self) -> str:
        return max(script.name for script in self.scripts.glob("[0-9]*.py")).split("_")[0]

    async def current(self, database: Database) -> str | None:
        return await database.read(self._read_version)

    async def require_head(self, database: Database) -> None:
        """Raise UnavailableError unless the schema is the one this code was written for."""
        current = await self.current(database)
        if current != self.head:
            raise UnavailableError(
                f"The {self.part} schema is at version {current or 'none'} and this code needs "
                f"{self.head}. Run `sandyard db upgrade`."
            )

    async def upgrade(self, database: Database, to: str = "head") -> None:
        await database.write(lambda connection: self._move(connection, to, forward=True))

    async def downgrade(self, database: Database, to: str = "base") -> None:
        await database.write(lambda connection: self._move(connection, to, forward=False))

    def _read_version(self, connection: sa.Connection) -> str | None:
        if not sa.inspect(connection).has_table(_VERSION_TABLE, schema=self.part):
            return None
        table = sa.Table(_VERSION_TABLE, sa.MetaData(), sa.Column("version_num"), schema=self.part)
        return connection.scalar(sa.select(table.c.version_num))

    def _move(self, connection: sa.Connection, to: str, *, forward: bool) -> None:
        from alembic.config import Config
        from alembic.runtime.environment import EnvironmentContext
        from alembic.script import ScriptDirectory

        if connection.dialect.name == "postgresql":
            lock = sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"sandyard {self.part} schema"))
            connection.execute(sa.select(lock))
            connection.execute(sa.schema.CreateSchema(self.part, if_not_exists=True))
        scripts = ScriptDirectory(str(self.scripts), version_locations=[str(self.scripts)])

        def steps(revision: Any, _context: Any) -> Any:
            plan: Callable[[str, Any], Any] = (
                scripts._upgrade_revs if forward else scripts._downgrade_revs  # noqa: SLF001
            )  # the same calls that `alembic upgrade` makes; there is no public name for them
            return plan(to, revision)

        with EnvironmentContext(Config(), scripts, fn=steps) as environment:
            environment.configure(
                connection=connection,
                version_table=_VERSION_TABLE,
                version_table_schema=self.part,
                transactional_ddl=True,
            )
            environment.run_migrations()
