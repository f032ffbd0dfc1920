"""Devices, readings, their markers, API keys, events and the job leases."""

import sqlalchemy as sa

from sandyard.kit.sql.shared_tables import (
    byte_ordered,
    create_event_table,
    create_index,
    create_job_table,
    create_table,
    drop_tables,
    sequence,
)

revision = "0002"
down_revision = None


def upgrade() -> None:
    create_table(
        "devices",
        sa.Column("hardware_id", sa.String(17), primary_key=True),
        sa.Column("confirmation_id", sa.String(36), nullable=False),
        sa.Column("capabilities", sa.Text, nullable=False),
        sa.Column("first_registered_at", sa.String(20), nullable=False),
        sa.Column("last_seen_at", sa.String(20), nullable=False),
        sa.Column("last_boot_id", sa.String(36), nullable=False),
        sa.Column("firmware_version", sa.String(64), nullable=False),
        sa.Column("friendly_name", sa.String(64)),
        sequence(),
    )
    create_index("devices", "last_seen_at, hardware_id", name="devices_by_activity")
    create_table(
        "device_readings",
        sa.Column("hardware_id", sa.String(17), primary_key=True),
        sa.Column("timestamp_ms", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("batch_id", byte_ordered(256), primary_key=True),
        sa.Column("boot_id", sa.String(36), nullable=False),
        sa.Column("firmware_version", sa.String(64), nullable=False),
        sa.Column("friendly_name", sa.String(64)),
        sa.Column("sensors", sa.Text, nullable=False),
        sa.Column("sensor_status", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    create_table(
        "processed_batches",
        sa.Column("batch_id", byte_ordered(256), primary_key=True),
        sa.Column("hardware_id", sa.String(17), nullable=False),
        sa.Column("received_at", sa.String(20), nullable=False),
        sa.Column("content_hash", sa.String(32), nullable=False),
        sa.Column("expiration_time", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    create_index("processed_batches", "expiration_time", name="processed_batches_expired")
    create_table(
        "api_keys",
        sa.Column("key_id", sa.String(36), primary_key=True),
        sa.Column("api_key_hash", sa.String(64), nullable=False),
        sa.Column("created_at", sa.String(20), nullable=False),
        sa.Column("last_used_at", sa.String(20)),
        sa.Column("is_active", sa.Boolean, nullable=False),
        sa.Column("description", sa.String(256)),
        sequence(),
    )
    create_index("api_keys", "api_key_hash", name="api_keys_by_hash", unique=True)
    create_index("api_keys", "created_at, key_id", name="api_keys_by_age")
    create_job_table()
    create_event_table()


def downgrade() -> None:
    drop_tables("events", "jobs", "api_keys", "processed_batches", "device_readings", "devices")
