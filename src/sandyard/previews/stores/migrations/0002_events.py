"""The event log with a baseline of what is there, and a column of its own for when the provider
last told of a sandbox, which is no change of state."""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import orjson
import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from sandyard.kit.changes.transitions import json_value
from sandyard.kit.ids import EventIds, subject_key
from sandyard.kit.sql.column_types import UtcTime
from sandyard.kit.sql.event_schema import create_event_table, index_events_by_account

revision = "0002"
down_revision = "0001"

TIME = sa.DateTime(timezone=True).with_variant(sa.String(27), "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")
OLD_COLUMNS = ("sandbox_id", "preview_url")
OLD_TTL = timedelta(minutes=30)
ROWS_AT_ONCE = 500

TAKE_OUT = {
    "postgresql": """
        last_checked = (sandbox_info->>'last_checked')::timestamptz,
        sandbox_info = sandbox_info - 'last_checked'
        WHERE sandbox_info->>'last_checked' IS NOT NULL""",
    "sqlite": """
        last_checked = substr(json_extract(sandbox_info, '$.last_checked'), 1, 23) || '000Z',
        sandbox_info = json_remove(sandbox_info, '$.last_checked')
        WHERE json_extract(sandbox_info, '$.last_checked') IS NOT NULL""",
}
PUT_BACK = {
    "postgresql": """
        sandbox_info = jsonb_set(sandbox_info, '{last_checked}', to_jsonb(to_char(
            last_checked AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')))
        WHERE sandbox_info IS NOT NULL AND last_checked IS NOT NULL""",
    "sqlite": """
        sandbox_info = json_set(
            sandbox_info, '$.last_checked', substr(last_checked, 1, 23) || 'Z')
        WHERE sandbox_info IS NOT NULL AND last_checked IS NOT NULL""",
}


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    connection = op.get_bind()
    create_event_table(op, schema=schema)
    index_events_by_account(op, schema=schema)
    if connection.dialect.name == "postgresql":
        op.alter_column("previews", "sequence", type_=sa.BigInteger, schema=schema)
    op.add_column("previews", sa.Column("last_checked", TIME), schema=schema)
    take_out = TAKE_OUT[connection.dialect.name]
    connection.exec_driver_sql(f"UPDATE {schema}.previews SET {take_out}")  # noqa: S608 - ours
    _write_baseline(connection, str(schema), at_ms=int(time.time() * 1000))


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    connection = op.get_bind()
    put_back = PUT_BACK[connection.dialect.name]
    connection.exec_driver_sql(f"UPDATE {schema}.previews SET {put_back}")  # noqa: S608 - ours
    op.drop_column("previews", "last_checked", schema=schema)
    if connection.dialect.name == "postgresql":
        op.alter_column("previews", "sequence", type_=sa.Integer, schema=schema)
    op.drop_table("events", schema=schema)


def _write_baseline(connection: sa.Connection, schema: str, *, at_ms: int) -> None:
    make_id = EventIds()
    names = "event_id subject subject_key sequence kind actor account_id at_ms effect data"
    events = sa.table("events", *map(sa.column, names.split()), schema=schema)
    for rows in _pages(connection, schema):
        baselines = [
            {
                "event_id": make_id(at_ms),
                "subject": row["project_id"],
                "subject_key": subject_key(row["project_id"]),
                "sequence": row["sequence"],
                "kind": "baseline",
                "actor": "system",
                "account_id": row["account_id"],
                "at_ms": at_ms,
                "effect": "full",
                "data": orjson.dumps(_state(row)).decode(),
            }
            for row in rows
        ]
        connection.execute(events.insert(), baselines)


def _pages(connection: sa.Connection, schema: str) -> Iterator[Sequence[Any]]:
    inspector = sa.inspect(connection)
    there = {column["name"] for column in inspector.get_columns("previews", schema=schema)}
    texts = ("project_id", "account_id", "attempt", *(set(OLD_COLUMNS) & there))
    table = sa.table(
        "previews",
        *(sa.column(name, sa.String) for name in texts),
        sa.column("created_at", UtcTime),
        sa.column("attempt_until", UtcTime),
        sa.column("sandbox_info", JSON),
        sa.column("files_version", sa.Integer),
        sa.column("sequence", sa.BigInteger),
        schema=schema,
    )
    page = sa.select(table).order_by(table.c.project_id).limit(ROWS_AT_ONCE)
    last = ""
    while rows := connection.execute(page.where(table.c.project_id > last)).mappings().all():
        yield rows
        last = rows[-1]["project_id"]


def _state(row: Any) -> dict[str, Any]:
    attempt = None
    if row["attempt"] is not None:
        attempt = {"id": row["attempt"], "until": json_value(row["attempt_until"])}
    return {
        "project_id": row["project_id"],
        "account_id": row["account_id"],
        "created_at": json_value(row["created_at"]),
        "info": _info(row),
        "attempt": attempt,
        "files_version": row["files_version"],
    }


def _info(row: Any) -> dict[str, Any] | None:
    """A sandbox that is only in the old columns is assumed to run for 30 minutes from the project's
    creation, until the provider reports otherwise."""
    info = row["sandbox_info"]
    if not info:
        old = {column: row.get(column) for column in OLD_COLUMNS}
        if set(old.values()) == {None}:
            return None
        start, end = row["created_at"], row["created_at"] + OLD_TTL
        info = {**old, "start_time": _text(start), "end_time": _text(end), "migrated": True}
    return {
        "sandbox_id": info["sandbox_id"] or "",
        "preview_url": info["preview_url"] or "",
        "start_time": json_value(datetime.fromisoformat(info["start_time"])),
        "end_time": json_value(datetime.fromisoformat(info["end_time"])),
        "attempt": info.get("attempt", ""),
        "files_version": info.get("files_version", 0),
        "is_estimated": info.get("migrated", False),
    }


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
