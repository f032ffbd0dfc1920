"""What was there before the event log: every sandbox, usage and bill has its state in one event."""

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.kit.changes.events import EventQuery
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.sql.database import Database
from sandyard.platform.events.entities import platform_events, platform_transitions
from sandyard.platform.sandboxes.ids import SandboxIds
from sandyard.platform.sandboxes.runs.model import recycle_sandbox
from sandyard.platform.sandboxes.sql.store import SqlSandboxStore
from sandyard.platform.schema import tables
from sandyard.platform.schema.migrations import MIGRATIONS
from sandyard.platform.usage.model import PriceList
from tests.support.platform.event_replay import assert_history
from tests.support.storage.engines import SQL_ENGINES, sql_database

AT = datetime(2026, 7, 31, 23, 59, 59, 123456, UTC)
OWNER = "100000000001"
PRICES = PriceList(Decimal("0.05"), Decimal("0.01"), Decimal("0.0001"))
TIMES = {"created_at": AT, "updated_at": AT}
ACCOUNT = {"account_id": OWNER, "email": "a@b.c", "username": "Ann", "password_hash": "h"}
PROJECT = {"project_id": "prj-1", "name": "one", "owner_account_id": OWNER}
TEMPLATE = {
    "template_id": "tpl-1",
    "name": "one",
    "category": "web",
    "language": "html",
    "is_official": True,
    "repository_url": "builtin:static",
}
SANDBOX = {"sandbox_id": "sbx-1", "name": "new", "template_id": "tpl-1", "owner_account_id": OWNER}
KEPT = SANDBOX | {
    "sandbox_id": "sbx-2",
    "name": "kept",
    "description": "ä",
    "project_id": "prj-1",
    "cpu_spec": 1.1,
    "status": "timeout",
    "status_reason": "it reached its deadline",
    "attempt": 3,
    "node": "n",
    "latest_snapshot_id": "snap-1",
    "snapshot_bytes": 5 * 10**9,
    "snapshot_taken_at": AT,
    "snapshot_expires_at": AT + timedelta(days=30),
    "storage_counted_until": AT,
    "expiry_told_at": AT,
    "started_at": AT,
    "stopped_at": AT,
    "timeout_at": AT,
}
RUNNING = SANDBOX | {
    "sandbox_id": "sbx-3",
    "name": "running",
    "status": "running",
    "attempt": 1,
    "preview_url": "http://127.0.0.1:1",
    "started_at": AT,
}
OPEN = {
    "usage_id": "usg-1",
    "sandbox_id": "sbx-3",
    "user_account_id": OWNER,
    "start_time": AT,
    "hourly_rate": Decimal("0.06"),
    "created_at": AT,
}
CLOSED = OPEN | {
    "usage_id": "usg-2",
    "sandbox_id": "sbx-2",
    "project_id": "prj-1",
    "service_type": "storage",
    "end_time": AT + timedelta(hours=1),
    "end_reason": "it reached its deadline",
    "running_seconds": 3600,
    "cpu_hours": 1 / 3,
    "storage_gb": 0.1,
    "cost": Decimal("0.123456"),
    "is_billed": True,
}
BILL = {
    "billing_id": "bil-1",
    "usage_id": "usg-2",
    "user_account_id": OWNER,
    "sandbox_id": "sbx-2",
    "billing_date": date(2026, 7, 31),
    "service_type": "storage",
    "usage_seconds": 3600,
    "hourly_rate": Decimal("0.000001"),
    "amount": Decimal("0.1"),
    "created_at": AT,
}


@pytest.fixture(params=SQL_ENGINES)
async def filled(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_url: str
) -> AsyncIterator[Database]:
    """The schema before the event log, with rows."""
    async with sql_database(request.param, tmp_path, postgres_url, schema="platform") as database:
        await MIGRATIONS.upgrade(database, "0002")
        rows: list[tuple[sa.Table, dict[str, Any]]] = [
            (tables.users, ACCOUNT | TIMES),
            (tables.projects, PROJECT | TIMES),
            (tables.templates, TEMPLATE | TIMES),
            *((tables.sandboxes, each | TIMES) for each in (SANDBOX, KEPT, RUNNING)),
            *((tables.sandbox_usage, each) for each in (OPEN, CLOSED)),
            (tables.billing_records, BILL),
        ]
        for table, row in rows:
            await insert(database, table, row)
        yield database


async def insert(database: Database, table: sa.Table, row: dict[str, Any]) -> None:
    statement = table.insert().values(row)
    await database.write(lambda connection: connection.execute(statement))


async def test_every_row_has_its_state_in_one_event(filled: Database) -> None:
    await MIGRATIONS.upgrade(filled)
    assert await assert_history(filled) == 6
    events = platform_events(filled)
    page = await events.page(EventQuery(account_id=OWNER), limit=50, cursor=None)
    subjects = {each.event.subject for each in page.items}
    assert {"sbx-1", "sbx-2", "sbx-3", "usg-1", "usg-2", "bil-1"} <= subjects
    [kept] = (await events.state_events(["sbx-2"]))["sbx-2"]
    assert (kept.kind, kept.sequence, kept.actor) == ("baseline", 1, "system")


async def test_bills_that_are_there_get_their_hours(filled: Database) -> None:
    usage, bill = tables.sandbox_usage, BILL | {"billing_id": "bil-2", "usage_seconds": 5400}
    later = bill | {"billing_date": date(2026, 8, 1)}  # a second of the usage was before that day
    await insert(filled, tables.billing_records, later)
    sizes = usage.update().where(usage.c.usage_id == "usg-2").values(cpu=1.1, memory_gb=0.5)
    await filled.write(lambda connection: connection.execute(sizes))
    await MIGRATIONS.upgrade(filled)
    bills = sa.select(tables.billing_records).order_by(tables.billing_records.c.id)
    first, second = await filled.read(lambda connection: connection.execute(bills).all())
    assert [str(first.cpu_hours), str(second.cpu_hours)] == ["1.100000", "1.650000"]
    assert [str(first.memory_hours), str(first.storage_hours)] == ["0.500000", "0.100000"]
    assert [first.corrects, second.corrects] == [None, None]
    assert await assert_history(filled) == 7


async def test_corrections_outlive_the_schema_before_them(filled: Database) -> None:
    await MIGRATIONS.upgrade(filled)
    numbers = {"usage_seconds": -60, "amount": Decimal("-0.01")}
    correction = BILL | numbers | {"billing_id": "bil-2", "corrects": "bil-1"}
    await insert(filled, tables.billing_records, correction)
    await MIGRATIONS.downgrade(filled, "0003")
    await MIGRATIONS.upgrade(filled)
    bills = sa.select(tables.billing_records.c.corrects, tables.billing_records.c.amount)
    found = await filled.read(lambda connection: connection.execute(bills).all())
    assert set(found) == {(None, Decimal("0.1")), ("bil-1", Decimal("-0.01"))}


async def test_changes_go_on_from_the_baseline(filled: Database) -> None:
    await MIGRATIONS.upgrade(filled)
    store = SqlSandboxStore(filled, platform_transitions(filled))
    sandbox = await store.find("sbx-2")
    assert sandbox is not None
    cause = Cause("system", round((AT + timedelta(days=1)).timestamp() * 1000))
    transitions = recycle_sandbox(sandbox, ids=SandboxIds().new(), prices=PRICES, cause=cause)
    assert transitions is not None
    assert await store.apply(*transitions)
    assert await assert_history(filled) == 7
    kinds = [each.kind for each in (await platform_events(filled).state_events(["sbx-2"]))["sbx-2"]]
    assert kinds == ["baseline", "sandbox.recycled"]
