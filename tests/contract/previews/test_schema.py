"""The schema of Previews on both engines."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from sandyard.kit.sql.database import Database
from sandyard.previews.stores.schema import MIGRATIONS
from sandyard.previews.stores.tables import OLD_COLUMNS, metadata
from tests.support.storage.engines import SQL_ENGINES, sql_database


@pytest.fixture(params=SQL_ENGINES)
async def empty(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str
) -> AsyncIterator[Database]:
    async with sql_database(request.param, tmp_path, postgres_url, schema="previews") as database:
        yield database


def column_names(connection: sa.Connection) -> dict[str, set[str]]:
    inspector = sa.inspect(connection)
    return {
        each.name: {column["name"] for column in inspector.get_columns(each.name, "previews")}
        for each in metadata.sorted_tables
    }


async def test_the_tables_in_the_code_are_those_in_the_database(empty: Database) -> None:
    await MIGRATIONS.upgrade(empty)
    expected = {each.name: set(each.columns.keys()) for each in metadata.sorted_tables}
    expected["previews"] -= set(OLD_COLUMNS)
    assert await empty.read(column_names) == expected
    await MIGRATIONS.drop(empty)
    assert await MIGRATIONS.current(empty) is None
    await MIGRATIONS.upgrade(empty)
