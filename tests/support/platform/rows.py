"""A row in each of the Platform's tables, and what it takes to insert more."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sandyard.kit.sql.database import Database
from sandyard.platform.schema import tables

NOON = datetime(2027, 1, 15, 12, 0, 0, 123456, UTC)
OWNER = "100000000001"
ROWS: dict[str, dict[str, Any]] = {
    "users": {"account_id": OWNER, "email": "a@b.c", "username": "Ann", "password_hash": "h"},
    "projects": {"project_id": "prj-1", "name": "one", "owner_account_id": OWNER},
    "templates": {
        "template_id": "tpl-1",
        "name": "one",
        "category": "web",
        "language": "python",
        "owner_account_id": OWNER,
        "repository_url": "builtin:static",
        "tags": ["a", "b"],
    },
    "api_keys": {
        "api_key": "sbk-abcd",
        "key_id": "key-1",
        "name": "one",
        "key_hash": "1",
        "user_account_id": OWNER,
    },
    "notifications": {
        "notification_id": "not-1",
        "title": "t",
        "message": "m",
        "user_account_id": OWNER,
    },
    "sandboxes": {
        "sandbox_id": "sbx-1",
        "name": "one",
        "template_id": "tpl-1",
        "project_id": "prj-1",
        "owner_account_id": OWNER,
    },
    "sandbox_usage": {
        "usage_id": "usg-1",
        "sandbox_id": "sbx-1",
        "user_account_id": OWNER,
        "start_time": NOON,
        "hourly_rate": Decimal("0.05"),
    },
    "sandbox_metrics": {"metric_id": "mtr-1", "sandbox_id": "sbx-1", "timestamp": NOON},
    "billing_records": {
        "billing_id": "bil-1",
        "usage_id": "usg-1",
        "user_account_id": OWNER,
        "billing_date": NOON,
        "service_type": "sandbox_runtime",
        "hourly_rate": Decimal("0.05"),
        "amount": Decimal("1.200001"),
    },
    "pending_signups": {
        "signup_id": "sgn-1",
        "email": "a@b.c",
        "username": "Ann",
        "password_hash": "h",
        "verification_token": "1",
        "expires_at": NOON,
    },
}


async def fill(database: Database) -> None:
    for name, row in ROWS.items():
        await insert(database, name, **row)


async def insert(database: Database, name: str, /, **values: Any) -> None:
    statement = tables.metadata.tables[f"platform.{name}"].insert().values(**values)
    await database.write(lambda connection: connection.execute(statement))
