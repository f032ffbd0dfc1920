"""Sandboxes with their usage, measurements and bills."""

import sqlalchemy as sa

from sandyard.kit.sql.shared_tables import (
    JSON,
    MONEY,
    TIME,
    belongs_to,
    byte_ordered,
    create_index,
    create_indexes,
    create_numbered_table,
    create_unique_index,
    drop_tables,
    flag,
    made,
    numbers,
    optional,
    sequence,
)

revision = "0023"
down_revision = "0022"

_TABLES = ("sandboxes", "sandbox_usage", "sandbox_metrics", "billing_records")


def upgrade() -> None:
    _sandboxes()
    _usage()
    _metrics()
    _bills()


def downgrade() -> None:
    drop_tables(*reversed(_TABLES))


def _sandboxes() -> None:
    create_numbered_table(
        "sandboxes",
        sa.Column("sandbox_id", sa.String(25), nullable=False, unique=True),
        sa.Column("name", byte_ordered(100), nullable=False),
        sa.Column("description", sa.Text),
        belongs_to("template_id", "templates.template_id", length=25),
        belongs_to("owner_account_id", "users.account_id", length=12),
        belongs_to("project_id", "projects.project_id", length=25, required=False),
        *numbers("cpu_spec", "memory_spec", kind=sa.Double, default="1.0"),
        sa.Column("max_running_seconds", sa.Integer, nullable=False, server_default="86400"),
        sa.Column("status", sa.String(20), nullable=False, server_default="created"),
        sa.Column("status_reason", sa.Text),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("node", sa.String(25)),
        sa.Column("preview_url", sa.String(500)),
        sa.Column("network", sa.String(10), nullable=False, server_default="none"),
        sa.Column("traffic_rules", JSON),
        flag("is_public"),
        flag("wake_on_request"),
        sa.Column("environment", sa.String(64)),
        sa.Column("folder", sa.String(500)),
        sa.Column("archive_id", sa.String(36)),
        sa.Column("metadata", JSON),
        sa.Column("idle_stop_minutes", sa.Integer),
        flag("recycle_on_timeout"),
        sa.Column("latest_snapshot_id", sa.String(255)),
        sa.Column("snapshot_bytes", sa.BigInteger),
        *optional(
            TIME,
            "snapshot_taken_at",
            "snapshot_expires_at",
            "storage_counted_until",
            "expiry_told_at",
        ),
        *made("created_at", "updated_at"),
        sequence(),
        *optional(TIME, "started_at", "stopped_at", "timeout_at", "recycled_at", "last_seen_at"),
        sa.Column("last_used_at", sa.DateTime(timezone=True)),
    )
    create_unique_index(
        "sandboxes",
        "owner_account_id, name",
        "unique_sandbox_name_per_owner",
        "status <> 'recycled'",
    )
    create_indexes(
        "sandboxes",
        "owner_account_id, created_at, id",
        "owner_account_id, name, id",
        "owner_account_id, updated_at, id",
        "template_id",
        "project_id",
        "status, id",
    )
    create_index("sandboxes", "snapshot_expires_at", where="snapshot_expires_at IS NOT NULL")
    create_index("sandboxes", "storage_counted_until", where="storage_counted_until IS NOT NULL")
    create_index("sandboxes", "node, status", where="status IN ('starting', 'running')")
    create_index("sandboxes", "latest_snapshot_id", where="latest_snapshot_id IS NOT NULL")


def _usage() -> None:
    create_numbered_table(
        "sandbox_usage",
        sa.Column("usage_id", sa.String(25), nullable=False, unique=True),
        belongs_to("sandbox_id", "sandboxes.sandbox_id", length=25),
        belongs_to("user_account_id", "users.account_id", length=12),
        belongs_to("project_id", "projects.project_id", length=25, required=False),
        sa.Column("service_type", sa.String(50), nullable=False, server_default="sandbox_runtime"),
        sa.Column("start_time", TIME, nullable=False),
        *optional(TIME, "end_time", "deadline_at"),
        sa.Column("end_reason", sa.String(255)),
        sa.Column("running_seconds", sa.Integer, nullable=False, server_default="0"),
        *numbers(
            "cpu_hours",
            "memory_hours",
            "storage_hours",
            "cpu",
            "memory_gb",
            "storage_gb",
            kind=sa.Double,
            default="0.0",
        ),
        sa.Column("hourly_rate", MONEY, nullable=False),
        sa.Column("cost", MONEY, nullable=False, server_default="0"),
        flag("is_billed"),
        *made("created_at"),
        sequence(),
    )
    create_index("sandbox_usage", "id", name="sandbox_usage_unbilled", where="is_billed = false")
    create_unique_index(
        "sandbox_usage",
        "sandbox_id, service_type",
        "one_open_usage_per_sandbox",
        "end_time IS NULL",
    )
    create_indexes(
        "sandbox_usage",
        "sandbox_id",
        "user_account_id, start_time, id",
        "project_id",
        "start_time",
        "end_time",
    )
    by_end = "user_account_id, end_time, id"
    create_index("sandbox_usage", by_end, name="usage_of_account_by_end")


def _metrics() -> None:
    create_numbered_table(
        "sandbox_metrics",
        sa.Column("metric_id", sa.String(25), nullable=False, unique=True),
        belongs_to("sandbox_id", "sandboxes.sandbox_id", length=36),
        sa.Column("timestamp", TIME, nullable=False),
        *numbers(
            "cpu_utilization",
            "memory_utilization",
            "storage_utilization",
            kind=sa.Double,
            default="0.0",
        ),
        *made("created_at"),
    )
    create_indexes("sandbox_metrics", "sandbox_id, timestamp", "timestamp")


def _bills() -> None:
    create_numbered_table(
        "billing_records",
        sa.Column("billing_id", sa.String(25), nullable=False, unique=True),
        belongs_to("usage_id", "sandbox_usage.usage_id", length=25),
        belongs_to("user_account_id", "users.account_id", length=12),
        belongs_to("project_id", "projects.project_id", length=25, required=False),
        belongs_to("sandbox_id", "sandboxes.sandbox_id", length=25, required=False),
        sa.Column("billing_date", TIME, nullable=False),
        sa.Column("service_type", sa.String(50), nullable=False),
        sa.Column("usage_seconds", sa.Integer, nullable=False, server_default="0"),
        sa.Column("hourly_rate", MONEY, nullable=False),
        sa.Column("amount", MONEY, nullable=False),
        *numbers("cpu_hours", "memory_hours", "storage_hours", kind=MONEY, default="0"),
        belongs_to("corrects", "billing_records.billing_id", length=25, required=False),
        sa.Column("description", sa.Text),
        *made("created_at"),
        sequence(),
    )
    create_unique_index(
        "billing_records",
        "usage_id, billing_date, service_type",
        "one_bill_per_usage_and_day",
        "corrects IS NULL",
    )
    create_indexes(
        "billing_records",
        "user_account_id, billing_date, id",
        "project_id",
        "sandbox_id",
        "billing_date",
    )
