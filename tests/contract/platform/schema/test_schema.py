"""The Platform's schema on both engines: forward and back with rows, defaults, keys, exact sums."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from sandyard.kit.sql.database import Database, open_database
from sandyard.platform.schema import tables
from sandyard.platform.schema.migrations import MIGRATIONS
from tests.support.platform.in_process import MigratedEngines
from tests.support.platform.rows import NOON, ROWS, fill, insert
from tests.support.storage.engines import SQL_ENGINES, sql_database

SEED_COLUMNS = {
    "users": "account_id email username password_hash full_name role is_active is_verified "
    "reset_token reset_token_expiry last_login last_password_reset_request "
    "created_at updated_at",
    "projects": "project_id name description owner_account_id status is_default created_at "
    "updated_at",
    "templates": "template_id name description category language min_cpu_required "
    "min_memory_required is_official is_public owner_account_id repository_url tags created_at "
    "updated_at",
    "api_keys": "api_key key_id user_account_id name description key_hash is_active last_used_at "
    "created_at updated_at",
    "notifications": "notification_id user_account_id title message type is_read "
    "related_entity_type related_entity_id created_at",
    "sandboxes": "sandbox_id name description template_id owner_account_id project_id cpu_spec "
    "memory_spec max_running_seconds status latest_snapshot_id snapshot_expires_at created_at "
    "updated_at started_at stopped_at timeout_at recycled_at",
    "sandbox_usage": "usage_id sandbox_id user_account_id start_time end_time running_seconds "
    "cpu_hours memory_hours storage_hours hourly_rate cost created_at",
    "sandbox_metrics": "metric_id sandbox_id timestamp cpu_utilization memory_utilization "
    "storage_utilization created_at",
    "billing_records": "billing_id user_account_id project_id sandbox_id billing_date "
    "service_type usage_seconds hourly_rate amount description created_at",
    "pending_signups": "signup_id email username full_name verification_token password_hash "
    "created_at expires_at",
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "users": {"role": "user", "is_active": True, "is_verified": False, "token_version": 0},
    "projects": {"status": "active", "is_default": False},
    "templates": {
        "min_cpu_required": 1.0,
        "min_memory_required": 1.0,
        "is_official": False,
        "is_public": False,
    },
    "api_keys": {"is_active": True},
    "notifications": {"type": "info", "is_read": False},
    "sandboxes": {
        "cpu_spec": 1.0,
        "memory_spec": 1.0,
        "max_running_seconds": 86400,
        "status": "created",
        "attempt": 0,
    },
    "sandbox_usage": {
        "running_seconds": 0,
        "cpu_hours": 0.0,
        "memory_hours": 0.0,
        "storage_hours": 0.0,
        "cost": Decimal(0),
        "service_type": "sandbox_runtime",
    },
    "sandbox_metrics": {
        "cpu_utilization": 0.0,
        "memory_utilization": 0.0,
        "storage_utilization": 0.0,
    },
    "billing_records": {"usage_seconds": 0},
    "pending_signups": {},
}

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("users", {"email": "b@b.c", "username": "Bob"}),
    ("users", {"account_id": "100000000002", "username": "Bob"}),
    ("users", {"account_id": "100000000002", "email": "b@b.c"}),
    ("users", {"account_id": "100000000002", "email": "b@b.c", "username": "aNN"}),
    ("projects", {"name": "two"}),
    ("projects", {"project_id": "prj-2"}),
    ("templates", {"name": "two"}),
    ("templates", {"template_id": "tpl-2"}),
    ("templates", {"template_id": "tpl-2", "name": "two", "owner_account_id": None}),
    ("templates", {"template_id": "tpl-2", "name": "two", "is_official": True}),
    ("api_keys", {"key_id": "key-2", "name": "two"}),
    ("api_keys", {"key_hash": "2", "name": "two"}),
    ("api_keys", {"key_hash": "2", "key_id": "key-2"}),
    ("notifications", {}),
    ("sandboxes", {"name": "two"}),
    ("sandboxes", {"sandbox_id": "sbx-2"}),
    ("sandboxes", {"sandbox_id": "sbx-2", "name": "two", "template_id": "tpl-9"}),
    ("sandboxes", {"sandbox_id": "sbx-2", "name": "two", "project_id": "prj-9"}),
    ("sandboxes", {"sandbox_id": "sbx-2", "name": "two", "owner_account_id": "9"}),
    ("sandbox_usage", {"end_time": NOON}),
    ("sandbox_usage", {"usage_id": "usg-2"}),
    ("sandbox_metrics", {}),
    ("billing_records", {"billing_date": NOON + timedelta(days=1)}),
    ("billing_records", {"billing_id": "bil-2"}),
    ("pending_signups", {"verification_token": "2"}),
    ("pending_signups", {"signup_id": "sgn-2"}),
]
"""Rows like those above, but for these columns: each takes what is taken, or has no owner."""


@pytest.fixture(params=SQL_ENGINES)
async def empty(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str
) -> AsyncIterator[Database]:
    async with sql_database(request.param, tmp_path, postgres_url, schema="platform") as database:
        yield database


@pytest.fixture(params=SQL_ENGINES)
async def filled(
    request: pytest.FixtureRequest, tmp_path: Path, migrated: MigratedEngines
) -> AsyncIterator[Database]:
    url = await migrated.copy(request.param, tmp_path)
    database = open_database(url, data_dir=tmp_path, part="platform", pool_size=1)
    await fill(database)
    yield database
    await database.close()


async def add(database: Database, name: str, /, **changes: Any) -> None:
    """Another row like the one that is there, but for these columns."""
    await insert(database, name, **(ROWS[name] | changes))


async def rows(database: Database, name: str) -> list[Any]:
    statement = sa.select(tables.metadata.tables[f"platform.{name}"])
    found = await database.read(lambda connection: connection.execute(statement).all())
    return list(found)


async def test_forward_twice_back_and_forward_again_with_rows(empty: Database) -> None:
    assert await MIGRATIONS.current(empty) is None
    await MIGRATIONS.upgrade(empty)
    await fill(empty)
    await MIGRATIONS.upgrade(empty)
    assert await MIGRATIONS.current(empty) == MIGRATIONS.head
    assert [len(await rows(empty, name)) for name in ROWS] == [1] * 10
    await MIGRATIONS.drop(empty)
    assert await MIGRATIONS.current(empty) is None
    await MIGRATIONS.upgrade(empty)
    assert [len(await rows(empty, name)) for name in ROWS] == [0] * 10


async def test_the_tables_in_the_code_are_those_in_the_database(filled: Database) -> None:
    def columns(connection: sa.Connection) -> dict[str, set[str]]:
        inspector = sa.inspect(connection)
        return {
            table.name: {c["name"] for c in inspector.get_columns(table.name, schema="platform")}
            for table in tables.metadata.sorted_tables
        }

    there = await filled.read(columns)
    expected = {t.name: set(t.columns.keys()) for t in tables.metadata.sorted_tables}
    assert there == expected
    for name, seeded in SEED_COLUMNS.items():
        assert there[name] >= {"id", *seeded.split()}, name


async def test_columns_left_out_get_the_seeds_defaults(filled: Database) -> None:
    for name, expected in DEFAULTS.items():
        [row] = await rows(filled, name)
        there = row._mapping
        assert {column: there[column] for column in expected} == expected
        assert abs(there["created_at"] - datetime.now(UTC)) < timedelta(minutes=1)
        assert there["created_at"].tzinfo is UTC


async def test_what_must_be_unique_or_belong_to_something_does(filled: Database) -> None:
    for table, changes in REFUSED:
        try:
            await add(filled, table, **changes)
        except exc.IntegrityError:
            continue
        raise AssertionError((table, changes))


async def test_what_is_gone_gives_its_name_free(filled: Database) -> None:
    def bury(connection: sa.Connection) -> None:
        for table in (tables.projects, tables.templates, tables.api_keys):
            connection.execute(table.update().values(deleted_at=NOON))
        connection.execute(tables.sandboxes.update().values(status="recycled"))
        connection.execute(tables.sandbox_usage.update().values(end_time=NOON))

    await filled.write(bury)
    await add(filled, "projects", project_id="prj-2")
    await add(filled, "templates", template_id="tpl-2")
    await add(filled, "api_keys", key_hash="2", key_id="key-2")
    await add(filled, "sandboxes", sandbox_id="sbx-2")
    await add(filled, "sandbox_usage", usage_id="usg-2")
    await add(filled, "sandbox_usage", usage_id="usg-3", service_type="storage")


async def test_official_templates_have_names_of_their_own(filled: Database) -> None:
    official = {"is_official": True, "owner_account_id": None}
    await add(filled, "templates", template_id="tpl-2", **official)
    with pytest.raises(exc.IntegrityError):
        await add(filled, "templates", template_id="tpl-3", **official)


async def test_an_account_has_one_default_project(filled: Database) -> None:
    await add(filled, "projects", project_id="prj-2", name="two", is_default=True)
    with pytest.raises(exc.IntegrityError):
        await add(filled, "projects", project_id="prj-3", name="three", is_default=True)


async def test_sums_of_money_are_exact(filled: Database) -> None:
    amounts = [Decimal("0.1"), Decimal("0.2"), Decimal("123456789012.345678"), Decimal("-0.000001")]
    for number, amount in enumerate(amounts):
        await add(
            filled,
            "billing_records",
            billing_id=f"bil-{number + 2}",
            billing_date=NOON + timedelta(days=number + 1),
            amount=amount,
        )
    bills = tables.billing_records.c
    total = sa.select(sa.func.sum(bills.amount), sa.func.max(bills.amount))
    row = await filled.read(lambda connection: connection.execute(total).one())
    assert row[0] == sum(amounts) + Decimal("1.200001")
    assert [str(row[0]), str(row[1])] == ["123456789013.845678", "123456789012.345678"]
    more = sa.select(sa.func.count()).where(bills.amount > Decimal("0.2"))
    assert await filled.read(lambda connection: connection.scalar(more)) == 2


async def test_money_with_more_places_is_refused_not_rounded(filled: Database) -> None:
    with pytest.raises(exc.StatementError, match="decimal places"):
        await add(filled, "billing_records", billing_id="bil-2", amount=Decimal("0.0000001"))


async def test_a_charge_has_no_usage(filled: Database) -> None:
    await add(filled, "billing_records", billing_id="bil-2", usage_id=None, service_type="charge")
    await add(filled, "billing_records", billing_id="bil-3", usage_id=None, service_type="charge")
    with pytest.raises(exc.IntegrityError):
        await add(filled, "billing_records", billing_id="bil-4", usage_id="usg-unknown")


async def test_a_time_comes_back_as_the_same_instant_in_utc(filled: Database) -> None:
    local = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    await add(filled, "sandbox_metrics", metric_id="mtr-2", timestamp=local)
    first, second = await rows(filled, "sandbox_metrics")
    assert first.timestamp == second.timestamp == NOON
    assert second.timestamp.tzinfo is UTC
    with pytest.raises(exc.StatementError, match="without a zone"):
        await add(filled, "sandbox_metrics", metric_id="mtr-3", timestamp=NOON.replace(tzinfo=None))


@pytest.mark.parametrize(
    ("name", "column"),
    [("users", "role"), ("projects", "status"), ("notifications", "type"), ("sandboxes", "status")],
)
async def test_an_unknown_role_state_or_type_is_refused(
    filled: Database, name: str, column: str
) -> None:
    statement = tables.metadata.tables[f"platform.{name}"].update().values({column: "unknown"})
    with pytest.raises(exc.IntegrityError):
        await filled.write(lambda connection: connection.execute(statement))
