"""Previews on each engine, with a double of E2B for each test."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from sandyard.kit.sql.database import open_database
from sandyard.previews.stores.tables import OLD_COLUMNS
from tests.support.e2b.double import E2bDouble, e2b_double
from tests.support.platform.in_process import MigratedEngines
from tests.support.previews.in_process import PreviewApi, preview_api
from tests.support.storage.engines import SQL_ENGINES


@pytest.fixture
async def double() -> AsyncIterator[E2bDouble]:
    async with e2b_double() as double:
        yield double


@pytest.fixture(params=SQL_ENGINES)
async def database_url(
    request: pytest.FixtureRequest, migrated: MigratedEngines, tmp_path: Path
) -> str | None:
    return await migrated.copy(request.param, tmp_path)


@pytest.fixture
async def old_columns(database_url: str | None, tmp_path: Path) -> None:
    """The columns that `sandbox_info` replaces, as in a database of an earlier release."""
    database = open_database(database_url, data_dir=tmp_path, part="previews", pool_size=1)
    for name in OLD_COLUMNS:
        add = sa.text(f"ALTER TABLE previews.previews ADD COLUMN {name} TEXT")
        await database.write(partial(_execute, statement=add))
    await database.close()


def _execute(connection: sa.Connection, statement: sa.TextClause) -> None:
    connection.execute(statement)


@pytest.fixture
async def api(
    database_url: str | None, tmp_path: Path, double: E2bDouble
) -> AsyncIterator[PreviewApi]:
    async with preview_api(database_url, tmp_path, double) as api:
        yield api
