"""Devices, readings, their markers, API keys and the job leases."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    # Pages continue after an id, which requires byte order, whatever the database's locale.
    batch_id = sa.String(256).with_variant(sa.String(256, collation="C"), "postgresql")
    op.create_table(
        "devices",
        sa.Column("hardware_id", sa.String(17), primary_key=True),
        sa.Column("confirmation_id", sa.String(36), nullable=False),
        sa.Column("capabilities", sa.Text, nullable=False),
        sa.Column("first_registered_at", sa.String(20), nullable=False),
        sa.Column("last_seen_at", sa.String(20), nullable=False),
        sa.Column("last_boot_id", sa.String(36), nullable=False),
        sa.Column("firmware_version", sa.String(64), nullable=False),
        sa.Column("friendly_name", sa.String(64)),
        schema=schema,
    )
    op.create_index(
        "devices_by_activity", "devices", ["last_seen_at", "hardware_id"], schema=schema
    )
    op.create_table(
        "device_readings",
        sa.Column("hardware_id", sa.String(17), primary_key=True),
        sa.Column("timestamp_ms", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("batch_id", batch_id, primary_key=True),
        sa.Column("boot_id", sa.String(36), nullable=False),
        sa.Column("firmware_version", sa.String(64), nullable=False),
        sa.Column("friendly_name", sa.String(64)),
        sa.Column("sensors", sa.Text, nullable=False),
        sa.Column("sensor_status", sa.Text, nullable=False),
        schema=schema,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "processed_batches",
        sa.Column("batch_id", batch_id, primary_key=True),
        sa.Column("hardware_id", sa.String(17), nullable=False),
        sa.Column("received_at", sa.String(20), nullable=False),
        sa.Column("content_hash", sa.String(32), nullable=False),
        sa.Column("expiration_time", sa.BigInteger, nullable=False),
        schema=schema,
        sqlite_with_rowid=False,
    )
    op.create_index(
        "processed_batches_expired", "processed_batches", ["expiration_time"], schema=schema
    )
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String(36), primary_key=True),
        sa.Column("api_key_hash", sa.String(64), nullable=False),
        sa.Column("created_at", sa.String(20), nullable=False),
        sa.Column("last_used_at", sa.String(20)),
        sa.Column("is_active", sa.Boolean, nullable=False),
        sa.Column("description", sa.String(256)),
        schema=schema,
    )
    op.create_index("api_keys_by_hash", "api_keys", ["api_key_hash"], unique=True, schema=schema)
    op.create_index("api_keys_by_age", "api_keys", ["created_at", "key_id"], schema=schema)
    op.create_table(
        "jobs",
        sa.Column("job", sa.String(64), primary_key=True),
        sa.Column("holder", sa.String(64)),
        sa.Column("held_until", sa.Double),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        schema=schema,
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for table in ("jobs", "api_keys", "processed_batches", "device_readings", "devices"):
        op.drop_table(table, schema=schema)
