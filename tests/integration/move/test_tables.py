"""The tables that a move copies are all that the migrations make."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from sandyard.bootstrap.registry import PARTS
from sandyard.kit.sql.database import SqliteDatabase
from sandyard.wiring.spec import PartSpec

GONE = {"previews": {"previews": {"sandbox_id", "preview_url"}}}
"""Columns that only databases of 0.2.0 have."""


def named(spec: PartSpec) -> str:
    return spec.name


@pytest.mark.parametrize("spec", PARTS, ids=named)
async def test_every_column_of_a_part_is_moved(spec: PartSpec, tmp_path: Path) -> None:
    def columns(connection: sa.Connection) -> dict[str, set[str]]:
        inspector = sa.inspect(connection)
        return {
            table: {column["name"] for column in inspector.get_columns(table, schema=spec.name)}
            for table in inspector.get_table_names(schema=spec.name)
            if table != "schema_version"
        }

    database = SqliteDatabase(tmp_path / spec.database_file, schema=spec.name)
    await spec.migrations().upgrade(database)
    found = await database.read(columns)
    await database.close()
    tables = spec.migrations().metadata.tables.values()
    moved = {table.name: {column.name for column in table.c} for table in tables}
    for table, gone in GONE.get(spec.name, {}).items():
        moved[table] -= gone
    assert found == moved
