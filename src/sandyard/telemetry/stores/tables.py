"""Telemetry's SQL tables."""

import sqlalchemy as sa

from sandyard.kit.sql.column_types import JsonText, Rfc3339, Varchar, byte_ordered, columns_of
from sandyard.kit.sql.columns import event_table, index, metadata_of, optional, required
from sandyard.kit.sql.job_leases import job_table
from sandyard.telemetry.model import ApiKey, Device

metadata = metadata_of("telemetry")

devices = sa.Table(
    "devices",
    metadata,
    *columns_of(
        Device,
        hardware_id=Varchar(17),
        confirmation_id=Varchar(36),
        capabilities=JsonText,
        first_registered_at=Rfc3339,
        last_seen_at=Rfc3339,
        last_boot_id=Varchar(36),
        firmware_version=Varchar(64),
        friendly_name=Varchar(64),
        defaults={"sequence": "1"},
    ),
    index("last_seen_at, hardware_id", name="devices_by_activity"),
)

device_readings = sa.Table(
    "device_readings",
    metadata,
    sa.Column("hardware_id", Varchar(17), primary_key=True),
    sa.Column("timestamp_ms", sa.BigInteger, primary_key=True, autoincrement=False),
    *optional(Rfc3339, "received_at"),
    sa.Column("batch_id", byte_ordered(256), primary_key=True),
    *required(Varchar(36), "boot_id"),
    *required(Varchar(64), "firmware_version"),
    *optional(Varchar(64), "friendly_name"),
    *required(sa.Text, "sensors", "sensor_status"),
    sqlite_with_rowid=False,
)
"""The key is the order in which readings are queried, so that a range is contiguous however many
others there are. It also finds expired readings, device by device."""

processed_batches = sa.Table(
    "processed_batches",
    metadata,
    sa.Column("batch_id", byte_ordered(256), primary_key=True),
    *required(Varchar(17), "hardware_id"),
    *required(Rfc3339, "received_at"),
    *required(Varchar(32), "content_hash"),
    *required(sa.BigInteger, "expiration_time"),
    index("expiration_time", name="processed_batches_expired"),
    sqlite_with_rowid=False,
)
"""The markers, which identify duplicates. `expiration_time` is in epoch seconds."""

api_keys = sa.Table(
    "api_keys",
    metadata,
    *columns_of(
        ApiKey,
        key_id=Varchar(36),
        api_key_hash=Varchar(64),
        created_at=Rfc3339,
        last_used_at=Rfc3339,
        description=Varchar(256),
        defaults={"sequence": "1"},
    ),
    index("api_key_hash", name="api_keys_by_hash", unique=True),
    index("created_at, key_id", name="api_keys_by_age"),
)

jobs = job_table(metadata)
events = event_table(metadata)
SUBJECTS = (devices.c.hardware_id, api_keys.c.key_id)
"""The subjects of events."""
