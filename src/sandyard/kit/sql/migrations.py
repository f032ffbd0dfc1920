"""Schema versions of a part: its numbered Alembic scripts, run on any `Database`.

Scripts are files like `0001_pool.py`, so the newest version is known without importing Alembic. An
upgrade is one transaction, all or nothing.

A script that only adds what older code can do without declares `oldest_code`: the version of the
oldest code that may keep serving beside it. It is stored with the version, because older code does
not have the script. Without it, only code of that version or a newer one may serve.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.job_leases import SqlJobLeases

_VERSION_TABLES = {"sqlite": "schema_version", "postgresql": "schema_revision"}
_VERSION = "version_num"
_OLDEST_CODE = "oldest_code"


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    current: str | None
    """None if there is no schema yet."""
    oldest_code: str | None = None

    def is_served_by(self, code: str) -> bool:
        if self.current is None or self.current <= code:
            return self.current == code
        return self.oldest_code is not None and self.oldest_code <= code


@dataclass(frozen=True, slots=True)
class Step:
    """What one script does."""

    version: str
    title: str
    oldest_code: str


@dataclass(frozen=True, slots=True)
class Migrations:
    """The schema of `part`: its scripts and upgrades."""

    part: str
    scripts: Path

    @property
    def head(self) -> str:
        return max(script.name for script in self.scripts.glob("[0-9]*.py")).split("_")[0]

    async def current(self, database: Database) -> str | None:
        return (await database.read(self._read)).current

    async def require_head(self, database: Database) -> None:
        """Raise UnavailableError unless this code may use the schema: the versions match, or the
        schema is newer and compatible."""
        found = await database.read(self._read)
        if not found.is_served_by(self.head):
            is_newer = found.current is not None and found.current > self.head
            raise UnavailableError(
                f"The {self.part} schema is at version {found.current or 'none'} and this code "
                f"needs {self.head}. "
                + ("Deploy the newer release." if is_newer else "Run `sandyard db upgrade`.")
            )

    def steps(self, after: str | None) -> Sequence[Step]:
        from alembic.script import ScriptDirectory

        scripts = ScriptDirectory(str(self.scripts), version_locations=[str(self.scripts)])
        steps = [
            Step(
                each.revision,
                (each.longdoc or "").strip().split("\n\n")[0].replace("\n", " "),
                getattr(each.module, _OLDEST_CODE, each.revision),
            )
            for each in scripts.walk_revisions()
        ]
        return sorted((s for s in steps if s.version > (after or "")), key=lambda s: s.version)

    async def upgrade(self, database: Database, to: str = "head") -> None:
        await database.write(lambda connection: self._move(connection, to, forward=True))

    async def downgrade(self, database: Database, to: str = "base") -> None:
        await database.write(lambda connection: self._move(connection, to, forward=False))

    def _read(self, connection: sa.Connection) -> SchemaVersion:
        table = self._version_table(connection)
        if not sa.inspect(connection).has_table(table.name, schema=self.part):
            return SchemaVersion(None)
        row = connection.execute(sa.select(table)).first()
        return SchemaVersion(None) if row is None else SchemaVersion(*row)

    def _version_table(self, connection: sa.Connection) -> sa.TableClause:
        name = _VERSION_TABLES[connection.dialect.name]
        return sa.table(name, sa.column(_VERSION), sa.column(_OLDEST_CODE), schema=self.part)

    def _write_oldest_code(self, connection: sa.Connection) -> None:
        """The newest `oldest_code` of the applied scripts."""
        current = self._read(connection).current
        applied = [step.oldest_code for step in self.steps(None) if step.version <= (current or "")]
        if applied:
            table = self._version_table(connection)
            connection.execute(table.update().values({_OLDEST_CODE: max(applied)}))

    def _move(self, connection: sa.Connection, to: str, *, forward: bool) -> None:
        from alembic.config import Config
        from alembic.runtime.environment import EnvironmentContext
        from alembic.script import ScriptDirectory

        if connection.dialect.name == "postgresql":
            lock = sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"sandyard {self.part} schema"))
            connection.execute(sa.select(lock))
            connection.execute(sa.schema.CreateSchema(self.part, if_not_exists=True))
        else:
            _drop_temporary_views(connection)
        version_table = self._version_table(connection).name
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS {self.part}.{version_table} "
            f"({_VERSION} VARCHAR(32) PRIMARY KEY, {_OLDEST_CODE} VARCHAR(32))"
        )
        scripts = ScriptDirectory(str(self.scripts), version_locations=[str(self.scripts)])

        def steps(revision: Any, _context: Any) -> Any:
            plan: Callable[[str, Any], Any] = (
                scripts._upgrade_revs if forward else scripts._downgrade_revs  # noqa: SLF001
            )  # the same calls that `alembic upgrade` makes; they have no public name
            return plan(to, revision)

        with EnvironmentContext(Config(), scripts, fn=steps) as environment:
            environment.configure(
                connection=connection,
                version_table=version_table,
                version_table_schema=self.part,
                transactional_ddl=True,
            )
            environment.run_migrations()
        self._write_oldest_code(connection)


def _drop_temporary_views(connection: sa.Connection) -> None:
    """They and their triggers depend on tables that may change now; `info` records that they exist,
    and code that needs them creates them again."""
    views = connection.exec_driver_sql("SELECT name FROM sqlite_temp_master WHERE type = 'view'")
    for (name,) in views.all():
        connection.exec_driver_sql(f"DROP VIEW temp.{name}")
    connection.info.clear()


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
