"""The event log, the number that every change is compared with, and a baseline of what is there."""

import time

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from sandyard.kit.sql.column_types import Money, UtcDay, UtcTime
from sandyard.kit.sql.event_schema import (
    add_sequence,
    create_event_table,
    index_events_by_account,
    write_baseline,
)
from sandyard.kit.sql.schema_locks import lock_tables

revision = "0003"
down_revision = "0002"
oldest_code = "0002"

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

ENTITIES = (
    "users",
    "pending_signups",
    "api_keys",
    "projects",
    "templates",
    "notifications",
    "sandboxes",
    "sandbox_usage",
    "billing_records",
)


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    if op.get_bind().dialect.name == "postgresql":
        lock_tables(op.get_bind(), *(f"{schema}.{name}" for name in ENTITIES))
    create_event_table(op, schema=schema)
    index_events_by_account(op, schema=schema)
    for name in ENTITIES:
        add_sequence(op, name, schema=schema)
    at_ms = int(time.time() * 1000)
    for table, subject, account in _baselines(schema):
        write_baseline(op, table, subject=subject, order=subject, account=account, at_ms=at_ms)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for table in ENTITIES:
        op.drop_column(table, "sequence", schema=schema)
    op.drop_table("events", schema=schema)


def _baselines(schema: str | None) -> list[tuple[sa.TableClause, str, str | None]]:
    """Of each table the columns that are state, what names its rows, and whose they are."""
    return [
        (
            sa.table(
                "users",
                sa.column("account_id", sa.Text),
                sa.column("email", sa.Text),
                sa.column("username", sa.Text),
                sa.column("full_name", sa.Text),
                sa.column("role", sa.Text),
                sa.column("is_active", sa.Boolean),
                sa.column("is_verified", sa.Boolean),
                sa.column("token_version", sa.Integer),
                sa.column("spend_threshold", Money),
                sa.column("reset_token_expiry", UtcTime),
                sa.column("last_password_reset_request", UtcTime),
                sa.column("created_at", UtcTime),
                sa.column("updated_at", UtcTime),
                schema=schema,
            ),
            "account_id",
            "account_id",
        ),
        (
            sa.table(
                "pending_signups",
                sa.column("signup_id", sa.Text),
                sa.column("email", sa.Text),
                sa.column("username", sa.Text),
                sa.column("full_name", sa.Text),
                sa.column("created_at", UtcTime),
                sa.column("expires_at", UtcTime),
                schema=schema,
            ),
            "signup_id",
            None,
        ),
        (
            sa.table(
                "projects",
                sa.column("project_id", sa.Text),
                sa.column("name", sa.Text),
                sa.column("description", sa.Text),
                sa.column("owner_account_id", sa.Text),
                sa.column("status", sa.Text),
                sa.column("is_default", sa.Boolean),
                sa.column("created_at", UtcTime),
                sa.column("updated_at", UtcTime),
                sa.column("deleted_at", UtcTime),
                schema=schema,
            ),
            "project_id",
            "owner_account_id",
        ),
        (
            sa.table(
                "templates",
                sa.column("template_id", sa.Text),
                sa.column("name", sa.Text),
                sa.column("description", sa.Text),
                sa.column("category", sa.Text),
                sa.column("language", sa.Text),
                sa.column("owner_account_id", sa.Text),
                sa.column("repository_url", sa.Text),
                sa.column("min_cpu_required", sa.Double),
                sa.column("min_memory_required", sa.Double),
                sa.column("is_official", sa.Boolean),
                sa.column("is_public", sa.Boolean),
                sa.column("tags", JSON),
                sa.column("created_at", UtcTime),
                sa.column("updated_at", UtcTime),
                sa.column("deleted_at", UtcTime),
                schema=schema,
            ),
            "template_id",
            "owner_account_id",
        ),
        (
            sa.table(
                "notifications",
                sa.column("notification_id", sa.Text),
                sa.column("user_account_id", sa.Text),
                sa.column("title", sa.Text),
                sa.column("message", sa.Text),
                sa.column("type", sa.Text),
                sa.column("related_entity_type", sa.Text),
                sa.column("related_entity_id", sa.Text),
                sa.column("is_read", sa.Boolean),
                sa.column("created_at", UtcTime),
                sa.column("deleted_at", UtcTime),
                schema=schema,
            ),
            "notification_id",
            "user_account_id",
        ),
        (
            sa.table(
                "api_keys",
                sa.column("key_id", sa.String),
                sa.column("user_account_id", sa.String),
                sa.column("name", sa.String),
                sa.column("description", sa.Text),
                sa.column("api_key", sa.String),
                sa.column("is_active", sa.Boolean),
                sa.column("created_at", UtcTime),
                sa.column("updated_at", UtcTime),
                sa.column("deleted_at", UtcTime),
                schema=schema,
            ),
            "key_id",
            "user_account_id",
        ),
        (
            sa.table(
                "sandboxes",
                sa.column("sandbox_id", sa.String),
                sa.column("name", sa.String),
                sa.column("description", sa.Text),
                sa.column("template_id", sa.String),
                sa.column("owner_account_id", sa.String),
                sa.column("project_id", sa.String),
                sa.column("cpu_spec", sa.Double),
                sa.column("memory_spec", sa.Double),
                sa.column("max_running_seconds", sa.Integer),
                sa.column("created_at", UtcTime),
                sa.column("updated_at", UtcTime),
                sa.column("status", sa.String),
                sa.column("status_reason", sa.Text),
                sa.column("attempt", sa.Integer),
                sa.column("node", sa.String),
                sa.column("preview_url", sa.String),
                sa.column("latest_snapshot_id", sa.String),
                sa.column("snapshot_bytes", sa.BigInteger),
                sa.column("snapshot_taken_at", UtcTime),
                sa.column("snapshot_expires_at", UtcTime),
                sa.column("storage_counted_until", UtcTime),
                sa.column("expiry_told_at", UtcTime),
                sa.column("started_at", UtcTime),
                sa.column("stopped_at", UtcTime),
                sa.column("timeout_at", UtcTime),
                sa.column("recycled_at", UtcTime),
                schema=schema,
            ),
            "sandbox_id",
            "owner_account_id",
        ),
        (
            sa.table(
                "sandbox_usage",
                sa.column("usage_id", sa.String),
                sa.column("sandbox_id", sa.String),
                sa.column("user_account_id", sa.String),
                sa.column("project_id", sa.String),
                sa.column("service_type", sa.String),
                sa.column("start_time", UtcTime),
                sa.column("end_time", UtcTime),
                sa.column("hourly_rate", Money),
                sa.column("cpu", sa.Double),
                sa.column("memory_gb", sa.Double),
                sa.column("storage_gb", sa.Double),
                sa.column("created_at", UtcTime),
                sa.column("end_reason", sa.String),
                sa.column("running_seconds", sa.Integer),
                sa.column("cpu_hours", sa.Double),
                sa.column("memory_hours", sa.Double),
                sa.column("storage_hours", sa.Double),
                sa.column("cost", Money),
                sa.column("is_billed", sa.Boolean),
                schema=schema,
            ),
            "usage_id",
            "user_account_id",
        ),
        (
            sa.table(
                "billing_records",
                sa.column("billing_id", sa.String),
                sa.column("usage_id", sa.String),
                sa.column("user_account_id", sa.String),
                sa.column("project_id", sa.String),
                sa.column("sandbox_id", sa.String),
                sa.column("billing_date", UtcDay),
                sa.column("service_type", sa.String),
                sa.column("usage_seconds", sa.Integer),
                sa.column("hourly_rate", Money),
                sa.column("amount", Money),
                sa.column("description", sa.Text),
                sa.column("created_at", UtcTime),
                schema=schema,
            ),
            "billing_id",
            "user_account_id",
        ),
    ]
