"""Telemetry's SQL tables, as the queries see them; the migrations make them."""

import sqlalchemy as sa

from sandyard.kit.sql.column_types import JsonText, Rfc3339, columns_of
from sandyard.kit.sql.events import event_table
from sandyard.kit.sql.job_leases import job_table
from sandyard.telemetry.model import ApiKey, Device

SCHEMA = "telemetry"

metadata = sa.MetaData(schema=SCHEMA)

devices = sa.Table(
    "devices",
    metadata,
    *columns_of(Device, capabilities=JsonText, first_registered_at=Rfc3339, last_seen_at=Rfc3339),
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
    "api_keys", metadata, *columns_of(ApiKey, created_at=Rfc3339, last_used_at=Rfc3339)
)

jobs = job_table(metadata)
events = event_table(metadata)
SUBJECTS = (devices.c.hardware_id, api_keys.c.key_id)
"""The subjects of events."""
