"""What the Platform's schema does for servers of 0.1.0 that share it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandyard.kit.sql.database import Database, open_database
from sandyard.kit.sql.job_leases import SqlJobLeases
from sandyard.platform.schema import tables
from sandyard.platform.schema.migrations import MIGRATIONS
from tests.contract.platform.schema.test_schema import fill
from tests.support.platform.in_process import MigratedEngines

NOW = datetime(2026, 11, 17, tzinfo=UTC)
NO_STATE: dict[str, dict[str, Any]] = {
    "users": {"last_login": NOW, "cleared_at": NOW},
    "api_keys": {"last_used_at": NOW},
    "projects": {"cleared_at": NOW},
    "sandboxes": {"last_seen_at": NOW, "last_used_at": NOW},
}
STATE: dict[str, dict[str, Any]] = {
    "users": {"password_hash": "another"},
    "pending_signups": {"verification_token": "another"},
    "api_keys": {"is_active": False},
    "projects": {"name": "another"},
    "templates": {"tags": ["another"]},
    "notifications": {"is_read": True},
    "sandboxes": {"status": "starting", "attempt": 1},
    "sandbox_usage": {"end_time": NOW},
    "billing_records": {"usage_seconds": 7},
}


@pytest.fixture
async def database(tmp_path: Path, migrated: MigratedEngines) -> AsyncIterator[Database]:
    url = await migrated.copy("postgresql", tmp_path)
    database = open_database(url, data_dir=tmp_path, part="platform", pool_size=1)
    await fill(database)
    yield database
    await database.close()


async def change(database: Database, name: str, values: dict[str, Any]) -> Any:
    """As 0.1.0 does, without the sequence; the row then."""
    table = tables.metadata.tables[f"platform.{name}"]
    update = table.update().values(values).returning(table)
    return await database.write(lambda connection: connection.execute(update).one())


def test_servers_of_0_1_0_go_on_beside_every_step() -> None:
    assert max(step.oldest_code for step in MIGRATIONS.steps(None)) == "0002"


async def test_changes_of_state_are_counted_for_it_and_nothing_else(database: Database) -> None:
    before = {name: (await change(database, name, {"id": 1})).sequence for name in STATE}
    for name, values in NO_STATE.items():
        assert (await change(database, name, values)).sequence == before[name], name
    for name, values in STATE.items():
        assert (await change(database, name, values)).sequence == before[name] + 1, name


async def test_a_run_of_0_1_0_is_not_taken_for_one_that_was_seen(database: Database) -> None:
    await change(database, "sandboxes", {"last_seen_at": NOW})
    assert (await change(database, "sandboxes", STATE["sandboxes"])).last_seen_at is None


async def test_its_bills_are_left_to_this_release(database: Database) -> None:
    leases = SqlJobLeases(database, tables.jobs)
    for job, is_free in (("billing", False), ("billing corrections", True)):
        taken = await leases.acquire(job, holder="any", now=2e9, held_until=2e9 + 60)
        assert taken is is_free, job
