"""The schema goes forward and back on both engines, and stays whole when a step fails."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from sandyard.broker.pool.model import Claim
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.broker.stores.tables import metadata
from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql.column_types import Varchar
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.migrations import Migrations
from tests.support.broker.pools import NOW, fill
from tests.support.storage.engines import SQL_ENGINES, sql_database


@pytest.fixture(params=SQL_ENGINES)
async def empty(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str
) -> AsyncIterator[Database]:
    async with sql_database(request.param, tmp_path, postgres_url, schema="broker") as database:
        yield database


async def test_forward_twice_back_and_forward_again_with_rows(empty: Database) -> None:
    assert await MIGRATIONS.current(empty) is None
    for _ in range(2):
        await MIGRATIONS.upgrade(empty)
        assert await MIGRATIONS.current(empty) == MIGRATIONS.head
    store = SqlPoolStore(empty)
    await fill(store, 3)
    assert await store.claim(Claim("t", "t", NOW)) is not None
    await MIGRATIONS.drop(empty)
    assert await MIGRATIONS.current(empty) is None
    await MIGRATIONS.upgrade(empty)
    assert await store.claim(Claim("t", "t", NOW)) is None


async def test_the_tables_in_the_code_are_those_in_the_database(empty: Database) -> None:
    await MIGRATIONS.upgrade(empty)

    def columns(connection: sa.Connection) -> dict[str, set[str]]:
        inspector = sa.inspect(connection)
        return {
            table.name: {c["name"] for c in inspector.get_columns(table.name, schema="broker")}
            for table in metadata.sorted_tables
        }

    expected = {table.name: set(table.columns.keys()) for table in metadata.sorted_tables}
    assert await empty.read(columns) == expected


async def test_a_database_without_a_schema_has_nothing_to_drop(empty: Database) -> None:
    await MIGRATIONS.drop(empty)
    assert await MIGRATIONS.current(empty) is None


async def test_an_old_schema_is_refused_with_the_command_to_run(empty: Database) -> None:
    with pytest.raises(UnavailableError, match="sandyard db upgrade"):
        await SqlPoolStore(empty).check()


async def test_a_step_that_fails_leaves_nothing_behind(empty: Database, tmp_path: Path) -> None:
    await MIGRATIONS.upgrade(empty)
    (tmp_path / "9999_half.py").write_text(
        "def upgrade(connection):\n"
        "    connection.exec_driver_sql('CREATE TABLE broker.half (id INTEGER)')\n"
        "    raise RuntimeError('in the middle')\n"
    )
    newer = Migrations(metadata, tmp_path)
    with pytest.raises(RuntimeError, match="in the middle"):
        await newer.upgrade(empty)
    exists = await empty.read(lambda c: sa.inspect(c).has_table("half", schema="broker"))
    assert not exists
    assert await newer.current(empty) == MIGRATIONS.head


async def test_a_schema_gets_the_tables_columns_and_indexes_that_it_lacks(
    empty: Database, tmp_path: Path
) -> None:
    await MIGRATIONS.upgrade(empty)
    newer = sa.MetaData(schema="broker")
    for table in metadata.sorted_tables:
        table.to_metadata(newer)
    tickets = newer.tables["broker.tickets"]
    tickets.append_column(sa.Column("shelf", Varchar(8), nullable=False, server_default="a"))
    tickets.append_constraint(sa.Index("tickets_by_shelf", tickets.c.shelf))
    sa.Table("shelves", newer, sa.Column("shelf", Varchar(8), primary_key=True))
    (tmp_path / "9999_shelves.py").write_text("")
    await Migrations(newer, tmp_path).upgrade(empty)

    def found(connection: sa.Connection) -> tuple[bool, bool, bool]:
        there = sa.inspect(connection)
        columns = {each["name"] for each in there.get_columns("tickets", "broker")}
        indexes = {each["name"] for each in there.get_indexes("tickets", "broker")}
        return (
            "shelf" in columns,
            "tickets_by_shelf" in indexes,
            there.has_table("shelves", "broker"),
        )

    assert await empty.read(found) == (True, True, True)
    await MIGRATIONS.upgrade(empty)
    assert await MIGRATIONS.current(empty) == "9999"
