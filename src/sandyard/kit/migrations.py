"""Schema versions of a part: its numbered Alembic scripts, run on any `Database`.

Scripts are files like `0001_pool.py`, so the newest version is known without importing Alembic.
A whole upgrade is one transaction: it happens or it does not.

A script that only adds what older code does not miss says so by `oldest_code`: the version of the
oldest code that may go on serving beside it. That is stored with the version, because older code
does not have the script. Without it, only code of that version or a newer one may.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql import Database

_VERSION_TABLE = "schema_version"
_OLDEST_CODE = "oldest_code"


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    current: str | None
    """None if there is no schema yet."""
    oldest_code: str | None = None

    def is_served_by(self, code: str) -> bool:
        """Whether code that was written for this version may use it."""
        if self.current is None or self.current <= code:
            return self.current == code
        return self.oldest_code is not None and self.oldest_code <= code


_NONE = SchemaVersion(None)


@dataclass(frozen=True, slots=True)
class Step:
    """What one script does."""

    version: str
    title: str
    oldest_code: str


@dataclass(frozen=True, slots=True)
class Migrations:
    """The schema of `part`: where its scripts lie and how it is brought to a version."""

    part: str
    scripts: Path

    @property
    def head(self) -> str:
        return max(script.name for script in self.scripts.glob("[0-9]*.py")).split("_")[0]

    async def current(self, database: Database) -> str | None:
        return (await database.read(self._read)).current

    async def require_head(self, database: Database) -> None:
        """Raise UnavailableError unless this code may use the schema: it was written for it, or
        the schema is newer and has all that this code needs."""
        found = await database.read(self._read)
        if not found.is_served_by(self.head):
            is_newer = found.current is not None and found.current > self.head
            raise UnavailableError(
                f"The {self.part} schema is at version {found.current or 'none'} and this code "
                f"needs {self.head}. "
                + ("Deploy the newer release." if is_newer else "Run `sandyard db upgrade`.")
            )

    def steps(self, after: str | None) -> Sequence[Step]:
        """What an upgrade from this version does."""
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
        names = self._version_columns(connection)
        if not names:
            return _NONE
        table = self._version_table
        row = connection.execute(sa.select(*(table.c[name] for name in names))).mappings().first()
        return _NONE if row is None else SchemaVersion(row["version_num"], row.get(_OLDEST_CODE))

    @property
    def _version_table(self) -> sa.TableClause:
        number: sa.ColumnClause[str] = sa.column("version_num")
        oldest: sa.ColumnClause[str] = sa.column(_OLDEST_CODE)
        return sa.table(_VERSION_TABLE, number, oldest, schema=self.part)

    def _version_columns(self, connection: sa.Connection) -> Sequence[str]:
        """None if there is no schema yet; release 0.1.0 made no `oldest_code`."""
        inspector = sa.inspect(connection)
        if not inspector.has_table(_VERSION_TABLE, schema=self.part):
            return ()
        return [each["name"] for each in inspector.get_columns(_VERSION_TABLE, schema=self.part)]

    def _write_oldest_code(self, connection: sa.Connection) -> None:
        """The newest of those that the applied scripts ask for."""
        if _OLDEST_CODE not in self._version_columns(connection):
            table = f"{self.part}.{_VERSION_TABLE}"
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {_OLDEST_CODE} VARCHAR(32)")
        current = self._read(connection).current
        if current is not None:
            applied = [step for step in self.steps(None) if step.version <= current]
            oldest = max(step.oldest_code for step in applied)
            connection.execute(sa.update(self._version_table).values({_OLDEST_CODE: oldest}))

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
        self._write_oldest_code(connection)
