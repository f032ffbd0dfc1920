"""The schema goes forward and back on both engines, and stays whole when a step fails."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from sandyard.broker.pool.model import Claim
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.broker.stores.tables import metadata
from sandyard.kit.errors import UnavailableError
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
    await MIGRATIONS.downgrade(empty)
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


async def test_an_old_schema_is_refused_with_the_command_to_run(empty: Database) -> None:
    with pytest.raises(UnavailableError, match="sandyard db upgrade"):
        await SqlPoolStore(empty).check()


async def test_a_step_that_fails_leaves_nothing_behind(empty: Database, tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "0001_half.py").write_text(
        "from alembic import op\nimport sqlalchemy as sa\nrevision='0001'\ndown_revision=None\n"
        "def upgrade():\n"
        "    op.create_table('half', sa.Column('id', sa.Integer), schema='broker')\n"
        "    raise RuntimeError('in the middle')\n"
    )
    with pytest.raises(RuntimeError, match="in the middle"):
        await Migrations("broker", scripts).upgrade(empty)
    exists = await empty.read(lambda c: sa.inspect(c).has_table("half", schema="broker"))
    assert not exists
    assert await MIGRATIONS.current(empty) is None
