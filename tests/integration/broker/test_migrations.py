"""The schema goes forward and back on both engines, and stays whole when a step fails."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.broker.pool.model import Claim
from sandyard.broker.provider.model import ProviderBinding
from sandyard.broker.stores.sql import MIGRATIONS, SqlPoolStore
from sandyard.broker.stores.tables import metadata
from sandyard.broker.verification import verify
from sandyard.kit.errors import UnavailableError
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.migrations import Migrations
from tests.support.broker.pools import NOW, check_history, fill
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


async def test_rows_from_before_the_events_get_a_baseline(empty: Database) -> None:
    await MIGRATIONS.upgrade(empty, "0001")
    await empty.write(lambda connection: connection.execute(_OLD_ROWS, _old_rows()))
    await MIGRATIONS.upgrade(empty)
    store = SqlPoolStore(empty)
    await check_history(store)
    report = await verify(store)
    assert (report.rows, report.tombstones, report.problems) == (1200, 300, [])
    assert await store.claim(Claim("new", "new", NOW)) is not None
    await check_history(store)


async def test_the_provider_that_a_pool_remembered_is_kept(empty: Database) -> None:
    await MIGRATIONS.upgrade(empty, "0003")
    old = sa.text("INSERT INTO broker.properties VALUES ('provider', 'https://csp.example.com')")
    await empty.write(lambda connection: connection.execute(old))
    await MIGRATIONS.upgrade(empty)
    store = SqlPoolStore(empty)
    assert await store.find_provider() == ProviderBinding("https://csp.example.com", sequence=1)
    assert (await verify(store)).problems == []


_OLD_ROWS = sa.text(
    "INSERT INTO broker.sandboxes (sandbox_id, name, external_id, status, lab_duration_hours, "
    "allocated_to_track, idempotency_key, track_name, allocated_at, lease_track, lease_key, "
    "lease_ends_at, deletion_requested_at, deletion_retry_count, next_attempt_at, last_synced, "
    "created_at, updated_at, deleted_at, kept_until, stale_reason) VALUES (:id, :id, :id, :status, "
    "1.5, :track, :track, :track, :at, :lease, :lease, :ends, :asked, 0, :next, 9, 8, 7, :gone, "
    ":gone, :stale)"
)


def _old_rows() -> list[dict[str, Any]]:
    """Five states by turns, of which one is a tombstone."""
    nothing = dict.fromkeys(("track", "lease", "ends", "asked", "next", "gone", "stale"))
    states: list[dict[str, Any]] = [
        {"status": "available"},
        {"status": "stale", "stale": "quarantined"},
        {"status": "allocated", "at": NOW, "ends": NOW + 5400},
        {"status": "pending_deletion", "at": NOW, "asked": NOW, "next": NOW},
        {"status": "deleted", "at": NOW, "asked": NOW, "gone": NOW},
    ]
    rows = []
    for number in range(1500):
        row: dict[str, Any] = {**nothing, "id": f"s{number}", "at": 0, **states[number % 5]}
        row["track"] = f"t{number}" if row["at"] else None
        row["lease"] = row["track"] if row["ends"] else None
        rows.append(row)
    return rows


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


def test_servers_of_0_1_0_go_on_beside_every_step() -> None:
    """Of those that do not: put their version here, and say in docs/upgrade.md what to stop."""
    assert {step.oldest_code for step in MIGRATIONS.steps(None)} == {"0001"}


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
