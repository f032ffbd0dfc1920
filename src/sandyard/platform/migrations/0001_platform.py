"""Accounts and what belongs to them, sandboxes, usage, bills and the job leases."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None

_TABLES = (
    "users",
    "projects",
    "templates",
    "api_keys",
    "notifications",
    "sandboxes",
    "sandbox_usage",
    "sandbox_metrics",
    "billing_records",
    "pending_signups",
    "jobs",
)

ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TIME = sa.DateTime(timezone=True).with_variant(sa.String(27), "sqlite")
MONEY = sa.Numeric(18, 6).with_variant(sa.BigInteger, "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")


def _name(length: int) -> Any:
    """Listings go on from a name, which needs an order by bytes whatever the database's locale."""
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def _now() -> Any:
    if op.get_context().dialect.name == "postgresql":
        return sa.text("CURRENT_TIMESTAMP")
    return sa.text("(strftime('%Y-%m-%dT%H:%M:%f', 'now') || '000Z')")


def _made(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, TIME, nullable=False, server_default=_now()) for name in names]


def _belongs_to(name: str, key: str, *, length: int, required: bool = True) -> sa.Column[Any]:
    target = f"{op.get_context().version_table_schema}.{key}"
    return sa.Column(name, sa.String(length), sa.ForeignKey(target), nullable=not required)


def _table(name: str, *columns: Any) -> None:
    schema = op.get_context().version_table_schema
    op.create_table(name, sa.Column("id", ID, primary_key=True), *columns, schema=schema)


def _index(
    table: str, columns: str, *, name: str = "", where: str = "", unique: bool = False
) -> None:
    only = sa.text(where) if where else None
    parts = [sa.text(part) if "(" in part else part for part in columns.split(", ")]
    plain = columns.replace("(", "_").replace(")", "").replace(", ", "_")
    op.create_index(
        name or f"{table}_{plain}",
        table,
        parts,
        unique=unique,
        schema=op.get_context().version_table_schema,
        sqlite_where=only,
        postgresql_where=only,
    )


def upgrade() -> None:
    _users()
    _projects()
    _templates()
    _api_keys()
    _notifications()
    _sandboxes()
    _usage()
    _metrics()
    _bills()
    _pending_signups()
    op.create_table(
        "jobs",
        sa.Column("job", sa.String(64), primary_key=True),
        sa.Column("holder", sa.String(64)),
        sa.Column("held_until", sa.Double),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        schema=op.get_context().version_table_schema,
    )


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_table(table, schema=op.get_context().version_table_schema)


def _users() -> None:
    _table(
        "users",
        sa.Column("account_id", sa.String(12), nullable=False, unique=True),
        sa.Column("email", _name(255), nullable=False, unique=True),
        sa.Column("username", _name(100), nullable=False, unique=True),
        sa.Column("password_hash", sa.String(255), nullable=False),
        sa.Column("full_name", sa.String(255)),
        sa.Column("role", sa.String(50), nullable=False, server_default="user"),
        sa.Column("is_active", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("is_verified", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("verification_token", sa.String(255)),
        sa.Column("reset_token", sa.String(255)),
        sa.Column("reset_token_expiry", TIME),
        sa.Column("last_login", TIME),
        sa.Column("last_password_reset_request", TIME),
        sa.Column("token_version", sa.Integer, nullable=False, server_default="0"),
        sa.Column("spend_threshold", MONEY),
        sa.Column("spend_notified_at", TIME),
        *_made("created_at", "updated_at"),
    )
    _index("users", "lower(username)", name="unique_username_in_any_case", unique=True)
    _index("users", "reset_token", unique=True)
    _index("users", "created_at, id")
    _index("users", "account_id", name="users_who_are_admins", where="role = 'admin'")


def _projects() -> None:
    _table(
        "projects",
        sa.Column("project_id", sa.String(25), nullable=False, unique=True),
        sa.Column("name", _name(255), nullable=False),
        sa.Column("description", sa.Text),
        _belongs_to("owner_account_id", "users.account_id", length=12),
        sa.Column("status", sa.String(20), nullable=False, server_default="active"),
        sa.Column("is_default", sa.Boolean, nullable=False, server_default=sa.false()),
        *_made("created_at", "updated_at"),
        sa.Column("deleted_at", TIME),
    )
    _index(
        "projects",
        "owner_account_id, name",
        name="unique_project_name_per_account",
        where="deleted_at IS NULL",
        unique=True,
    )
    _index(
        "projects",
        "owner_account_id",
        name="one_default_project_per_account",
        where="is_default",
        unique=True,
    )
    _index("projects", "owner_account_id, created_at, id")


def _templates() -> None:
    _table(
        "templates",
        sa.Column("template_id", sa.String(25), nullable=False, unique=True),
        sa.Column("name", _name(255), nullable=False),
        sa.Column("description", sa.Text),
        sa.Column("category", sa.String(100), nullable=False),
        sa.Column("language", sa.String(100), nullable=False),
        sa.Column("min_cpu_required", sa.Double, nullable=False, server_default="1.0"),
        sa.Column("min_memory_required", sa.Double, nullable=False, server_default="1.0"),
        sa.Column("is_official", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("is_public", sa.Boolean, nullable=False, server_default=sa.false()),
        _belongs_to("owner_account_id", "users.account_id", length=12, required=False),
        sa.Column("repository_url", sa.String(500), nullable=False),
        sa.Column("tags", JSON),
        *_made("created_at", "updated_at"),
        sa.Column("deleted_at", TIME),
        sa.CheckConstraint(
            "(is_official AND owner_account_id IS NULL)"
            " OR (NOT is_official AND owner_account_id IS NOT NULL)",
            name="official_templates_have_no_owner",
        ),
    )
    _index(
        "templates",
        "owner_account_id, name",
        name="unique_template_name_per_owner",
        where="deleted_at IS NULL",
        unique=True,
    )
    _index(
        "templates",
        "name",
        name="unique_official_template_name",
        where="owner_account_id IS NULL AND deleted_at IS NULL",
        unique=True,
    )
    _index("templates", "owner_account_id, created_at, id")
    _index("templates", "created_at, id", where="is_official OR is_public")


def _api_keys() -> None:
    _table(
        "api_keys",
        sa.Column("api_key", sa.String(50), nullable=False),
        sa.Column("key_id", sa.String(25), nullable=False, unique=True),
        _belongs_to("user_account_id", "users.account_id", length=12),
        sa.Column("name", _name(255), nullable=False),
        sa.Column("description", sa.Text),
        sa.Column("key_hash", sa.String(64), nullable=False, unique=True),
        sa.Column("is_active", sa.Boolean, nullable=False, server_default=sa.true()),
        sa.Column("last_used_at", TIME),
        *_made("created_at", "updated_at"),
        sa.Column("deleted_at", TIME),
    )
    _index("api_keys", "api_key")
    _index(
        "api_keys",
        "user_account_id, name",
        name="unique_api_key_name_per_user",
        where="deleted_at IS NULL",
        unique=True,
    )
    _index("api_keys", "user_account_id, created_at, id")


def _notifications() -> None:
    _table(
        "notifications",
        sa.Column("notification_id", sa.String(25), nullable=False, unique=True),
        _belongs_to("user_account_id", "users.account_id", length=12),
        sa.Column("title", sa.String(255), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("type", sa.String(50), nullable=False, server_default="info"),
        sa.Column("is_read", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("related_entity_type", sa.String(100)),
        sa.Column("related_entity_id", sa.String(255)),
        *_made("created_at"),
        sa.Column("deleted_at", TIME),
    )
    _index("notifications", "user_account_id, created_at, id")


def _sandboxes() -> None:
    _table(
        "sandboxes",
        sa.Column("sandbox_id", sa.String(25), nullable=False, unique=True),
        sa.Column("name", _name(100), nullable=False),
        sa.Column("description", sa.Text),
        _belongs_to("template_id", "templates.template_id", length=25),
        _belongs_to("owner_account_id", "users.account_id", length=12),
        _belongs_to("project_id", "projects.project_id", length=25, required=False),
        sa.Column("cpu_spec", sa.Double, nullable=False, server_default="1.0"),
        sa.Column("memory_spec", sa.Double, nullable=False, server_default="1.0"),
        sa.Column("max_running_seconds", sa.Integer, nullable=False, server_default="86400"),
        sa.Column("status", sa.String(20), nullable=False, server_default="created"),
        sa.Column("status_reason", sa.Text),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("node", sa.String(25)),
        sa.Column("preview_url", sa.String(500)),
        sa.Column("latest_snapshot_id", sa.String(255)),
        sa.Column("snapshot_bytes", sa.BigInteger),
        sa.Column("snapshot_taken_at", TIME),
        sa.Column("snapshot_expires_at", TIME),
        sa.Column("storage_counted_until", TIME),
        sa.Column("expiry_told_at", TIME),
        *_made("created_at", "updated_at"),
        sa.Column("started_at", TIME),
        sa.Column("stopped_at", TIME),
        sa.Column("timeout_at", TIME),
        sa.Column("recycled_at", TIME),
    )
    _index(
        "sandboxes",
        "owner_account_id, name",
        name="unique_sandbox_name_per_owner",
        where="status <> 'recycled'",
        unique=True,
    )
    _index("sandboxes", "owner_account_id, created_at, id")
    _index("sandboxes", "owner_account_id, name, id")
    _index("sandboxes", "owner_account_id, updated_at, id")
    _index("sandboxes", "template_id")
    _index("sandboxes", "project_id")
    _index("sandboxes", "status, id")
    _index("sandboxes", "snapshot_expires_at", where="snapshot_expires_at IS NOT NULL")
    _index("sandboxes", "storage_counted_until", where="storage_counted_until IS NOT NULL")
    _index("sandboxes", "node, status", where="status IN ('starting', 'running')")
    _index("sandboxes", "latest_snapshot_id", where="latest_snapshot_id IS NOT NULL")


def _usage() -> None:
    _table(
        "sandbox_usage",
        sa.Column("usage_id", sa.String(25), nullable=False, unique=True),
        _belongs_to("sandbox_id", "sandboxes.sandbox_id", length=25),
        _belongs_to("user_account_id", "users.account_id", length=12),
        _belongs_to("project_id", "projects.project_id", length=25, required=False),
        sa.Column("service_type", sa.String(50), nullable=False, server_default="sandbox_runtime"),
        sa.Column("start_time", TIME, nullable=False),
        sa.Column("end_time", TIME),
        sa.Column("end_reason", sa.String(255)),
        sa.Column("running_seconds", sa.Integer, nullable=False, server_default="0"),
        sa.Column("cpu_hours", sa.Double, nullable=False, server_default="0.0"),
        sa.Column("memory_hours", sa.Double, nullable=False, server_default="0.0"),
        sa.Column("storage_hours", sa.Double, nullable=False, server_default="0.0"),
        sa.Column("cpu", sa.Double, nullable=False, server_default="0.0"),
        sa.Column("memory_gb", sa.Double, nullable=False, server_default="0.0"),
        sa.Column("storage_gb", sa.Double, nullable=False, server_default="0.0"),
        sa.Column("hourly_rate", MONEY, nullable=False),
        sa.Column("cost", MONEY, nullable=False, server_default="0"),
        sa.Column("is_billed", sa.Boolean, nullable=False, server_default=sa.false()),
        *_made("created_at"),
    )
    _index("sandbox_usage", "id", name="sandbox_usage_unbilled", where="is_billed = false")
    _index(
        "sandbox_usage",
        "sandbox_id, service_type",
        name="one_open_usage_per_sandbox",
        where="end_time IS NULL",
        unique=True,
    )
    _index("sandbox_usage", "sandbox_id")
    _index("sandbox_usage", "user_account_id, start_time, id")
    _index("sandbox_usage", "project_id")
    _index("sandbox_usage", "start_time")
    _index("sandbox_usage", "end_time")


def _metrics() -> None:
    _table(
        "sandbox_metrics",
        sa.Column("metric_id", sa.String(25), nullable=False, unique=True),
        _belongs_to("sandbox_id", "sandboxes.sandbox_id", length=36),
        sa.Column("timestamp", TIME, nullable=False),
        sa.Column("cpu_utilization", sa.Double, nullable=False, server_default="0.0"),
        sa.Column("memory_utilization", sa.Double, nullable=False, server_default="0.0"),
        sa.Column("storage_utilization", sa.Double, nullable=False, server_default="0.0"),
        *_made("created_at"),
    )
    _index("sandbox_metrics", "sandbox_id, timestamp")
    _index("sandbox_metrics", "timestamp")


def _bills() -> None:
    _table(
        "billing_records",
        sa.Column("billing_id", sa.String(25), nullable=False, unique=True),
        _belongs_to("usage_id", "sandbox_usage.usage_id", length=25),
        _belongs_to("user_account_id", "users.account_id", length=12),
        _belongs_to("project_id", "projects.project_id", length=25, required=False),
        _belongs_to("sandbox_id", "sandboxes.sandbox_id", length=25, required=False),
        sa.Column("billing_date", TIME, nullable=False),
        sa.Column("service_type", sa.String(50), nullable=False),
        sa.Column("usage_seconds", sa.Integer, nullable=False, server_default="0"),
        sa.Column("hourly_rate", MONEY, nullable=False),
        sa.Column("amount", MONEY, nullable=False),
        sa.Column("description", sa.Text),
        *_made("created_at"),
    )
    _index(
        "billing_records",
        "usage_id, billing_date, service_type",
        name="one_bill_per_usage_and_day",
        unique=True,
    )
    _index("billing_records", "user_account_id, billing_date, id")
    _index("billing_records", "project_id")
    _index("billing_records", "sandbox_id")
    _index("billing_records", "billing_date")


def _pending_signups() -> None:
    _table(
        "pending_signups",
        sa.Column("signup_id", sa.String(25), nullable=False, unique=True),
        sa.Column("email", sa.String(255), nullable=False),
        sa.Column("username", sa.String(100), nullable=False),
        sa.Column("full_name", sa.String(255)),
        sa.Column("verification_token", sa.String(255), nullable=False, unique=True),
        sa.Column("password_hash", sa.String(255), nullable=False),
        *_made("created_at"),
        sa.Column("expires_at", TIME, nullable=False),
    )
    _index("pending_signups", "email")
    _index("pending_signups", "expires_at")
