"""The schema of a part: a new one is created as its tables say; an older one gets the tables,
columns and indexes that it lacks, and then what the numbered scripts do besides.

The newest script's number is the version, so every change of the tables comes with a script. An
upgrade is one transaction, all or nothing.

A script that only adds what older code can do without declares `oldest_code`: the version of the
oldest code that may keep serving beside it. It is stored with the version, because older code does
not have the script. Without it, only code of that version or a newer one may serve.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc

from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.job_leases import SqlJobLeases

_VERSION_TABLES = {"sqlite": "schema_version", "postgresql": "schema_revision"}
_VERSION = "version_num"
_OLDEST_CODE = "oldest_code"
_WAIT_MS = 200
"""Shorter than the second after which PostgreSQL checks for deadlocks and aborts a transaction."""
_TRIES = 200
_NOT_AVAILABLE = "55P03"


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
    upgrade: Callable[[sa.Connection], None] | None


@dataclass(frozen=True, slots=True)
class Migrations:
    """The newest schema of a part, and the scripts that lead to it."""

    metadata: sa.MetaData
    scripts: Path

    @property
    def part(self) -> str:
        return str(self.metadata.schema)

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
        steps = map(_step, sorted(self.scripts.glob("[0-9]*.py")))
        return [step for step in steps if step.version > (after or "")]

    async def upgrade(self, database: Database) -> None:
        """To the newest version; a newer schema is left unchanged."""
        await database.write(self._upgrade)

    async def drop(self, database: Database) -> None:
        """All tables, with their data."""

        def work(connection: sa.Connection) -> None:
            versions = self._locked_versions(connection)
            self.metadata.drop_all(connection)
            connection.execute(sa.delete(versions))

        await database.write(work)

    def _read(self, connection: sa.Connection) -> SchemaVersion:
        table = self._version_table(connection)
        if not sa.inspect(connection).has_table(table.name, schema=self.part):
            return SchemaVersion(None)
        row = connection.execute(sa.select(table)).first()
        return SchemaVersion(None) if row is None else SchemaVersion(*row)

    def _version_table(self, connection: sa.Connection) -> sa.TableClause:
        name = _VERSION_TABLES[connection.dialect.name]
        return sa.table(name, sa.column(_VERSION), sa.column(_OLDEST_CODE), schema=self.part)

    def _locked_versions(self, connection: sa.Connection) -> sa.TableClause:
        """The table of the version; on PostgreSQL nobody else changes the schema meanwhile."""
        if connection.dialect.name == "postgresql":
            lock = sa.func.pg_advisory_xact_lock(sa.func.hashtext(f"sandyard {self.part} schema"))
            connection.execute(sa.select(lock))
            connection.execute(sa.schema.CreateSchema(self.part, if_not_exists=True))
        else:
            _drop_temporary_views(connection)
        versions = self._version_table(connection)
        connection.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS {self.part}.{versions.name} "
            f"({_VERSION} VARCHAR(32) PRIMARY KEY, {_OLDEST_CODE} VARCHAR(32))"
        )
        return versions

    def _upgrade(self, connection: sa.Connection) -> None:
        versions = self._locked_versions(connection)
        before = self._read(connection).current
        if before is None:
            self.metadata.create_all(connection)
        elif before < self.head:
            self._add_missing(connection)
            for step in self.steps(before):
                if step.upgrade is not None:
                    step.upgrade(connection)
        else:
            return
        oldest_code = max(step.oldest_code for step in self.steps(None))
        connection.execute(sa.delete(versions))
        version = {_VERSION: self.head, _OLDEST_CODE: oldest_code}
        connection.execute(sa.insert(versions).values(version))

    def _add_missing(self, connection: sa.Connection) -> None:
        """The existing tables stay locked until the upgrade is complete."""
        inspector = sa.inspect(connection)
        names = set(inspector.get_table_names(schema=self.part))
        existing = [each for each in self.metadata.sorted_tables if each.name in names]
        if connection.dialect.name == "postgresql":
            lock_tables(connection, *(each.fullname for each in existing))
        self.metadata.create_all(connection)
        indexes = self._index_names(connection)
        for table in existing:
            there = {each["name"] for each in inspector.get_columns(table.name, self.part)}
            for column in table.columns:
                if column.name not in there and not column.system:
                    added = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
                    connection.exec_driver_sql(f"ALTER TABLE {table.fullname} ADD COLUMN {added}")
            for index in table.indexes:
                if index.name not in indexes:
                    index.create(connection)

    def _index_names(self, connection: sa.Connection) -> set[str]:
        """SQLAlchemy does not find those with expressions on SQLite."""
        found = (
            f"SELECT indexname FROM pg_indexes WHERE schemaname = '{self.part}'"  # noqa: S608 - ours
            if connection.dialect.name == "postgresql"
            else f"SELECT name FROM {self.part}.sqlite_master WHERE type = 'index'"  # noqa: S608
        )
        return set(connection.exec_driver_sql(found).scalars())


def _step(script: Path) -> Step:
    spec = spec_from_file_location(script.stem, script)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - it is a file of ours
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    version = script.name.split("_")[0]
    return Step(
        version,
        (module.__doc__ or "").strip().split("\n\n")[0].replace("\n", " "),
        getattr(module, _OLDEST_CODE, version),
        getattr(module, "upgrade", None),
    )


def lock_tables(connection: sa.Connection, *names: str) -> None:
    """Lock these tables until the transaction ends; other users of them wait.

    Servers use several tables in varying order. So locks are held only briefly while waiting for
    the rest; then all are released for the next attempt.
    """
    for _ in range(_TRIES):
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_WAIT_MS}ms'")
                connection.exec_driver_sql(f"LOCK TABLE {', '.join(names)}")
                connection.exec_driver_sql("SET LOCAL lock_timeout TO DEFAULT")
        except exc.DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _NOT_AVAILABLE:
                raise
            time.sleep(random.uniform(0.05, 0.2))  # noqa: S311 - no secret
        else:
            return
    raise UnavailableError(
        "The tables are locked by other transactions. Try again when there is less load."
    )


def edit_definition(
    connection: sa.Connection, table: sa.Table, change: Callable[[str], str]
) -> None:
    """SQLite has no statement that changes a table's constraints. By its documentation, a change
    that leaves the stored rows valid may be made to the text of the table's definition."""
    schema = table.schema
    master = f"{schema}.sqlite_master"
    where = "WHERE type = 'table' AND name = ?"
    found = connection.exec_driver_sql(f"SELECT sql FROM {master} {where}", (table.name,))  # noqa: S608 - ours
    [sql] = found.scalars().all()
    version = connection.exec_driver_sql(f"PRAGMA {schema}.schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    update = f"UPDATE {master} SET sql = ? {where}"  # noqa: S608
    connection.exec_driver_sql(update, (change(sql), table.name))
    connection.exec_driver_sql(f"PRAGMA {schema}.schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")


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
        await self.migrations.upgrade(self.database)
