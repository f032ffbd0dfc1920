"""The event log, the number that every change is compared with, and a baseline of what is there."""

import time

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.column_types import JsonText
from sandyard.kit.sql.event_schema import add_sequence, create_event_table, write_baseline

revision = "0002"
down_revision = "0001"
oldest_code = "0001"


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    create_event_table(op, schema=schema)
    add_sequence(op, "devices", schema=schema)
    add_sequence(op, "api_keys", schema=schema)
    devices = sa.table(
        "devices",
        sa.column("hardware_id", sa.String),
        sa.column("confirmation_id", sa.String),
        sa.column("capabilities", JsonText),
        sa.column("first_registered_at", sa.String),
        sa.column("last_boot_id", sa.String),
        sa.column("firmware_version", sa.String),
        sa.column("friendly_name", sa.String),
        schema=schema,
    )
    api_keys = sa.table(
        "api_keys",
        sa.column("key_id", sa.String),
        sa.column("created_at", sa.String),
        sa.column("is_active", sa.Boolean),
        sa.column("description", sa.String),
        schema=schema,
    )
    at_ms = int(time.time() * 1000)
    write_baseline(op, devices, subject="hardware_id", order="hardware_id", at_ms=at_ms)
    write_baseline(op, api_keys, subject="key_id", order="key_id", at_ms=at_ms)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_column("api_keys", "sequence", schema=schema)
    op.drop_column("devices", "sequence", schema=schema)
    op.drop_table("events", schema=schema)
