"""A schema of 0.2.0 that is upgraded equals one that this release creates."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path

import asyncpg
import pytest
import sqlalchemy as sa

from sandyard.bootstrap.registry import PARTS
from sandyard.kit.clock import SystemClock
from sandyard.kit.sql.database import Database, open_database
from sandyard.previews.stores.old_columns import OldColumns
from tests.support.storage.engines import SQL_ENGINES, create_database

DUMPS = Path(__file__).parents[2] / "fixtures" / "schema-0.2.0"
ORDER = ("broker", "telemetry", "previews", "platform")
"""Triggers of the Platform's schema call functions of Previews'."""
LEFT_FOR_0_2_0 = {"project_files"}
"""In the Platform's schema on PostgreSQL: 0.2.0 deletes from it while both releases serve."""

_CATALOG = """
SELECT relname, 'index', pg_get_indexdef(indexrelid) FROM pg_index
    JOIN pg_class ON pg_class.oid = indrelid WHERE relnamespace = '{0}'::regnamespace
UNION ALL SELECT relname, 'constraint', pg_get_constraintdef(c.oid) FROM pg_constraint c
    JOIN pg_class ON pg_class.oid = conrelid WHERE relnamespace = '{0}'::regnamespace
UNION ALL SELECT relname, 'trigger', tgname FROM pg_trigger
    JOIN pg_class ON pg_class.oid = tgrelid
    WHERE relnamespace = '{0}'::regnamespace AND NOT tgisinternal
UNION ALL SELECT proname, 'function', '' FROM pg_proc WHERE pronamespace = '{0}'::regnamespace
UNION ALL SELECT relname, 'column', concat_ws(' ', attname, format_type(atttypid, atttypmod),
    attnotnull, pg_get_expr(adbin, adrelid), collname) FROM pg_attribute
    JOIN pg_class ON pg_class.oid = attrelid
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    LEFT JOIN pg_collation ON pg_collation.oid = attcollation
    WHERE relnamespace = '{0}'::regnamespace AND relkind IN ('r', 'v') AND attnum > 0
    AND NOT attisdropped
"""
"""Everything of a schema, but the order of columns, and sequences, which are defaults."""

_CASTS = re.compile(r"::(text|character varying)|[][()]")
"""They differ after a dump."""

Schema = set[tuple[str, ...]]


def describe(connection: sa.Connection, part: str) -> Schema:
    if connection.dialect.name == "postgresql":
        rows = [
            (table, kind, _CASTS.sub("", definition))
            for table, kind, definition in connection.exec_driver_sql(_CATALOG.format(part))
        ]
        return {row for row in rows if part != "platform" or row[0] not in LEFT_FOR_0_2_0}
    inspector = sa.inspect(connection)
    found: Schema = set()
    master = sa.table("sqlite_master", *map(sa.column, ("tbl_name", "type", "sql")), schema=part)
    objects = connection.execute(sa.select(master).where(sa.column("sql").is_not(None))).all()
    for table, kind, sql in objects:
        if kind != "table":
            found.add((table, kind, sql))
            continue
        for column in connection.exec_driver_sql(f"PRAGMA {part}.table_info({table})").all():
            found.add((table, "column", *map(str, column[1:])))
        checks = inspector.get_check_constraints(table, schema=part)
        keys = connection.exec_driver_sql(f"PRAGMA {part}.foreign_key_list({table})").all()
        found |= {(table, "check", str(each)) for each in checks}
        found |= {(table, "foreign key", *map(str, key[2:])) for key in keys}
        for _, index, *_ in connection.exec_driver_sql(f"PRAGMA {part}.index_list({table})").all():
            columns = connection.exec_driver_sql(f"PRAGMA {part}.index_info({index})").all()
            found.add((table, "index", *(str(column[2]) for column in columns)))
        found |= {(table, word, "") for word in ("AUTOINCREMENT", "WITHOUT ROWID") if word in sql}
    return found


@asynccontextmanager
async def opened(url: str | None, data_dir: Path) -> AsyncIterator[dict[str, Database]]:
    """The database of each part, at the newest version."""
    async with AsyncExitStack() as stack:
        databases = {}
        for part in PARTS:
            database = open_database(url, data_dir=data_dir, part=part.name, pool_size=1)
            stack.push_async_callback(database.close)
            assert part.migrations is not None
            await part.migrations().upgrade(database)
            databases[part.name] = database
        yield databases


async def load_0_2_0(url: str | None, data_dir: Path) -> None:
    for part in ORDER:
        engine = "sqlite" if url is None else "postgresql"
        dump = (DUMPS / f"{part}.{engine}.sql").read_text()
        if url is None:
            with closing(sqlite3.connect(data_dir / f"{part}.db")) as connection:
                connection.executescript(dump)
        else:
            connected = await asyncpg.connect(url)
            await connected.execute(dump)
            await connected.close()


@pytest.mark.parametrize("engine", SQL_ENGINES)
async def test_an_upgraded_schema_equals_a_new_one_once_the_old_columns_are_dropped(
    engine: str, tmp_path: Path, postgres_url: str
) -> None:
    schemas = []
    for is_old in (True, False):
        url = None if engine == "sqlite" else await create_database(postgres_url)
        data_dir = tmp_path / str(is_old)
        data_dir.mkdir()
        if is_old:
            await load_0_2_0(url, data_dir)
        async with opened(url, data_dir) as databases:
            if is_old:
                columns = OldColumns(databases["previews"], clock=SystemClock())
                await columns.finish(lambda _: None)
            schemas.append(
                {
                    part: await database.read(partial(describe, part=part))
                    for part, database in databases.items()
                }
            )
    upgraded, new = schemas
    assert {part: upgraded[part] ^ new[part] for part in new} == {part: set() for part in new}
