"""Telemetry's SQL tables, as the queries see them; the migrations make them."""

import sqlalchemy as sa

from sandyard.kit.sql.column_types import JsonText, Rfc3339
from sandyard.kit.sql.events import event_table
from sandyard.kit.sql.job_leases import job_table

SCHEMA = "telemetry"

metadata = sa.MetaData(schema=SCHEMA)

devices = sa.Table(
    "devices",
    metadata,
    sa.Column("hardware_id", sa.String(17), primary_key=True),
    sa.Column("confirmation_id", sa.String(36), nullable=False),
    sa.Column("capabilities", JsonText, nullable=False),
    sa.Column("first_registered_at", Rfc3339, nullable=False),
    sa.Column("last_seen_at", Rfc3339, nullable=False),
    sa.Column("last_boot_id", sa.String(36), nullable=False),
    sa.Column("firmware_version", sa.String(64), nullable=False),
    sa.Column("friendly_name", sa.String(64)),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)

device_readings = sa.Table(
    "device_readings",
    metadata,
    sa.Column("hardware_id", sa.String(17), primary_key=True),
    sa.Column("timestamp_ms", sa.BigInteger, primary_key=True),
    sa.Column("received_at", Rfc3339),
    sa.Column("batch_id", sa.String(256), primary_key=True),
    sa.Column("boot_id", sa.String(36), nullable=False),
    sa.Column("firmware_version", sa.String(64), nullable=False),
    sa.Column("friendly_name", sa.String(64)),
    sa.Column("sensors", sa.Text, nullable=False),
    sa.Column("sensor_status", sa.Text, nullable=False),
)
"""The key is the order in which readings are queried, so that a range is contiguous however many
others there are. It also finds expired readings, device by device."""

processed_batches = sa.Table(
    "processed_batches",
    metadata,
    sa.Column("batch_id", sa.String(256), primary_key=True),
    sa.Column("hardware_id", sa.String(17), nullable=False),
    sa.Column("received_at", Rfc3339, nullable=False),
    sa.Column("content_hash", sa.String(32), nullable=False),
    sa.Column("expiration_time", sa.BigInteger, nullable=False),
)
"""The markers, which identify duplicates. `expiration_time` is in epoch seconds."""

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("key_id", sa.String(36), primary_key=True),
    sa.Column("api_key_hash", sa.String(64), nullable=False),
    sa.Column("created_at", Rfc3339, nullable=False),
    sa.Column("last_used_at", Rfc3339),
    sa.Column("is_active", sa.Boolean, nullable=False),
    sa.Column("description", sa.String(256)),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)

jobs = job_table(metadata)
events = event_table(metadata)
SUBJECTS = (devices.c.hardware_id, api_keys.c.key_id)
"""The subjects of events."""
