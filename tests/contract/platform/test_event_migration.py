"""An older schema with rows gets a baseline for each, from which its events go on."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.kit.changes.transitions import Cause
from sandyard.kit.sql.database import Database
from sandyard.platform.api_keys.model import revoke_key
from sandyard.platform.api_keys.sql import SqlKeyStore
from sandyard.platform.events.entities import platform_events, platform_transitions
from sandyard.platform.events.verification import verify_platform
from sandyard.platform.schema import tables
from sandyard.platform.schema.migrations import MIGRATIONS
from sandyard.platform.usage.sql import USAGES
from tests.support.storage.engines import SQL_ENGINES, sql_database

NOON = datetime(2027, 1, 15, 12, 0, 0, 123456, UTC)
OWNER = "100000000001"
ROWS: list[tuple[str, dict[str, Any]]] = [
    ("users", {"account_id": OWNER, "email": "a@b.c", "username": "Ann", "password_hash": "h"}),
    (
        "users",
        {
            "account_id": "100000000002",
            "email": "b@b.c",
            "username": "Bob",
            "full_name": "Böb 🐙",
            "password_hash": "secret hash",
            "role": "admin",
            "is_active": False,
            "is_verified": True,
            "reset_token": "secret token",
            "reset_token_expiry": NOON,
            "last_login": NOON,
            "last_password_reset_request": NOON - timedelta(hours=1),
            "token_version": 7,
            "spend_threshold": Decimal("12.5"),
        },
    ),
    (
        "pending_signups",
        {
            "signup_id": "sgn-1",
            "email": "c@b.c",
            "username": "Cid",
            "verification_token": "secret token",
            "password_hash": "secret hash",
            "expires_at": NOON,
        },
    ),
    ("projects", {"project_id": "prj-1", "name": "one", "owner_account_id": OWNER}),
    (
        "projects",
        {
            "project_id": "prj-2",
            "name": "two",
            "description": "a\nb",
            "owner_account_id": OWNER,
            "status": "archived",
            "created_at": NOON,
            "deleted_at": NOON,
        },
    ),
    (
        "templates",
        {
            "template_id": "tpl-1",
            "name": "one",
            "category": "web",
            "language": "python",
            "owner_account_id": OWNER,
            "repository_url": "builtin:static",
            "min_memory_required": 0.5,
            "tags": ["a", "b c"],
        },
    ),
    (
        "templates",
        {
            "template_id": "tpl-2",
            "name": "official",
            "category": "web",
            "language": "python",
            "is_official": True,
            "repository_url": "builtin:static",
        },
    ),
    (
        "api_keys",
        {
            "api_key": "sbk-abcd",
            "key_id": "key-1",
            "name": "one",
            "key_hash": "secret hash",
            "user_account_id": OWNER,
            "last_used_at": NOON,
        },
    ),
    (
        "notifications",
        {
            "notification_id": "not-1",
            "title": "t",
            "message": "m",
            "type": "warning",
            "user_account_id": OWNER,
            "related_entity_type": "api_key",
        },
    ),
]


async def filled_at_0002(
    database: Database, rows: Sequence[tuple[str, dict[str, Any]]] = ROWS
) -> None:
    await MIGRATIONS.upgrade(database, "0002")

    def work(connection: sa.Connection) -> None:
        for name, values in rows:
            connection.execute(tables.metadata.tables[f"platform.{name}"].insert().values(values))

    await database.write(work)


@pytest.mark.parametrize("engine", SQL_ENGINES)
async def test_every_row_of_an_older_schema_gets_a_baseline(
    engine: str, tmp_path: Path, postgres_url: str
) -> None:
    async with sql_database(engine, tmp_path, postgres_url, schema="platform") as database:
        await filled_at_0002(database)
        await MIGRATIONS.upgrade(database)
        report = await verify_platform(database)
        assert (report.subjects, report.problems) == (len(ROWS), [])
        statement = sa.select(tables.events)
        found = await database.read(lambda c: c.execute(statement).all())
        assert {(row.kind, row.actor, row.effect) for row in found} == {
            ("baseline", "system", "full")
        }
        owned = {row.subject: row.account_id for row in found}
        assert (owned["key-1"], owned["tpl-2"], owned[OWNER]) == (OWNER, None, OWNER)
        assert "secret" not in "".join(row.data for row in found)


@pytest.mark.parametrize("engine", SQL_ENGINES)
async def test_events_go_on_from_the_baseline(
    engine: str, tmp_path: Path, postgres_url: str
) -> None:
    async with sql_database(engine, tmp_path, postgres_url, schema="platform") as database:
        await filled_at_0002(database)
        await MIGRATIONS.upgrade(database)
        keys = SqlKeyStore(database, platform_transitions(database))
        key = await keys.find_key(OWNER, "key-1")
        assert key is not None
        assert key.sequence == 1
        assert await keys.apply(revoke_key(key, Cause("operator", 1_900_000_000_000)))
        log = await platform_events(database).state_events(["key-1"])
        assert [(each.kind, each.sequence) for each in log["key-1"]] == [
            ("baseline", 1),
            ("key.revoked", 2),
        ]
        assert (await verify_platform(database)).problems == []
        await MIGRATIONS.downgrade(database, "0002")
        await MIGRATIONS.upgrade(database)
        assert (await verify_platform(database)).problems == []


@pytest.mark.parametrize("engine", SQL_ENGINES)
async def test_a_row_that_was_changed_without_an_event_is_found(
    engine: str, tmp_path: Path, postgres_url: str
) -> None:
    async with sql_database(engine, tmp_path, postgres_url, schema="platform") as database:
        await filled_at_0002(database)
        await MIGRATIONS.upgrade(database)
        wrong = tables.projects.update().where(tables.projects.c.project_id == "prj-1")
        await database.write(lambda c: c.execute(wrong.values(name="forged")))
        [problem] = (await verify_platform(database)).problems
        assert problem.subject == "prj-1"
        assert "name" in problem.message


@pytest.mark.parametrize("engine", SQL_ENGINES)
async def test_a_run_that_goes_on_over_an_upgrade_gets_its_deadline(
    engine: str, tmp_path: Path, postgres_url: str
) -> None:
    usage = {
        "sandbox_id": "sbx-1",
        "user_account_id": OWNER,
        "start_time": NOON,
        "hourly_rate": Decimal("0.06"),
    }
    sandbox = {
        "sandbox_id": "sbx-1",
        "name": "one",
        "template_id": "tpl-1",
        "owner_account_id": OWNER,
        "status": "running",
        "timeout_at": NOON + timedelta(hours=1),
    }
    rows = [
        *ROWS,
        ("sandboxes", sandbox),
        ("sandbox_usage", usage | {"usage_id": "usg-1"}),
        ("sandbox_usage", usage | {"usage_id": "usg-2", "end_time": NOON}),
    ]
    async with sql_database(engine, tmp_path, postgres_url, schema="platform") as database:
        await filled_at_0002(database, rows)
        await MIGRATIONS.upgrade(database)
        statement = sa.select(tables.sandbox_usage).order_by(tables.sandbox_usage.c.usage_id)
        found = await database.read(lambda c: c.execute(statement).all())
        usages = [USAGES.entity_of(row) for row in found]
        assert [each.deadline_at for each in usages] == [NOON + timedelta(hours=1), None]
        assert usages[0].seconds_until(NOON + timedelta(days=9)) == 3600
        [baseline] = (await platform_events(database).state_events(["usg-1"]))["usg-1"]
        assert (baseline.kind, baseline.sequence) == ("baseline", usages[0].sequence)
        assert (await verify_platform(database)).problems == []
