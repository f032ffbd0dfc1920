"""The Platform's SQL tables, as the queries see them; the migrations make them, with defaults,
keys and indexes."""

import sqlalchemy as sa

from sandyard.kit.sql.column_types import BIG_ID, Json, Money, UtcDay, UtcTime
from sandyard.kit.sql.events import event_table
from sandyard.kit.sql.job_leases import job_table

SCHEMA = "platform"

metadata = sa.MetaData(schema=SCHEMA)

users = sa.Table(
    "users",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("account_id", sa.String(12), nullable=False),
    sa.Column("email", sa.String(255), nullable=False),
    sa.Column("username", sa.String(100), nullable=False),
    sa.Column("password_hash", sa.String(255), nullable=False),
    sa.Column("full_name", sa.String(255)),
    sa.Column("role", sa.String(50), nullable=False),
    sa.Column("is_active", sa.Boolean, nullable=False),
    sa.Column("is_verified", sa.Boolean, nullable=False),
    sa.Column("reset_token", sa.String(255)),
    sa.Column("reset_token_expiry", UtcTime),
    sa.Column("last_login", UtcTime),
    sa.Column("last_password_reset_request", UtcTime),
    sa.Column("token_version", sa.Integer, nullable=False),
    sa.Column("spend_threshold", Money),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("deleted_at", UtcTime),
    sa.Column("cleared_at", UtcTime),
)
"""`reset_token` is SHA-256 in hexadecimal. A login is valid while its `token_version` is the row's.
"""

projects = sa.Table(
    "projects",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("project_id", sa.String(25), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("description", sa.Text),
    sa.Column("owner_account_id", sa.String(12), nullable=False),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("is_default", sa.Boolean, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("deleted_at", UtcTime),
    sa.Column("cleared_at", UtcTime),
)

templates = sa.Table(
    "templates",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("template_id", sa.String(25), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("description", sa.Text),
    sa.Column("category", sa.String(100), nullable=False),
    sa.Column("language", sa.String(100), nullable=False),
    sa.Column("min_cpu_required", sa.Double, nullable=False),
    sa.Column("min_memory_required", sa.Double, nullable=False),
    sa.Column("is_official", sa.Boolean, nullable=False),
    sa.Column("is_public", sa.Boolean, nullable=False),
    sa.Column("owner_account_id", sa.String(12)),
    sa.Column("warm_machines", sa.Integer, nullable=False),
    sa.Column("repository_url", sa.String(500), nullable=False),
    sa.Column("repository_ref", sa.String(200)),
    sa.Column("repository_folder", sa.String(500)),
    sa.Column("repository_secret", sa.String(128)),
    sa.Column("network", sa.String(10)),
    sa.Column("environment", sa.String(64)),
    sa.Column("tags", Json),
    sa.Column("archives", Json),
    sa.Column("made_from", sa.String(25)),
    sa.Column("start_command", sa.Text),
    sa.Column("ready_command", sa.Text),
    sa.Column("working_folder", sa.Text),
    sa.Column("default_user", sa.String(32)),
    sa.Column("build_variables", Json),
    sa.Column("archive_bytes", sa.BigInteger),
    sa.Column("archived_by", sa.String(25)),
    sa.Column("storage_counted_until", UtcTime),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("deleted_at", UtcTime),
)
"""A template has no owner exactly if it is official."""

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("api_key", sa.String(50), nullable=False),
    sa.Column("key_id", sa.String(25), nullable=False),
    sa.Column("user_account_id", sa.String(12), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("description", sa.Text),
    sa.Column("key_hash", sa.String(64), nullable=False),
    sa.Column("is_active", sa.Boolean, nullable=False),
    sa.Column("scope", sa.String(10), nullable=False),
    sa.Column("expires_at", UtcTime),
    sa.Column("last_used_at", UtcTime),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("deleted_at", UtcTime),
)
"""`api_key` is the beginning of the key, for people; the credential is looked up by `key_hash`."""

notifications = sa.Table(
    "notifications",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("notification_id", sa.String(25), nullable=False),
    sa.Column("user_account_id", sa.String(12), nullable=False),
    sa.Column("title", sa.String(255), nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("type", sa.String(50), nullable=False),
    sa.Column("is_read", sa.Boolean, nullable=False),
    sa.Column("related_entity_type", sa.String(100)),
    sa.Column("related_entity_id", sa.String(255)),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("deleted_at", UtcTime),
)

sandboxes = sa.Table(
    "sandboxes",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("sandbox_id", sa.String(25), nullable=False),
    sa.Column("name", sa.String(100), nullable=False),
    sa.Column("description", sa.Text),
    sa.Column("template_id", sa.String(25), nullable=False),
    sa.Column("owner_account_id", sa.String(12), nullable=False),
    sa.Column("project_id", sa.String(25)),
    sa.Column("cpu_spec", sa.Double, nullable=False),
    sa.Column("memory_spec", sa.Double, nullable=False),
    sa.Column("max_running_seconds", sa.Integer, nullable=False),
    sa.Column("is_public", sa.Boolean, nullable=False),
    sa.Column("wake_on_request", sa.Boolean, nullable=False),
    sa.Column("metadata", Json),
    sa.Column("recycle_on_timeout", sa.Boolean, nullable=False),
    sa.Column("network", sa.String(10), nullable=False),
    sa.Column("traffic_rules", Json),
    sa.Column("environment", sa.String(64)),
    sa.Column("folder", sa.String(500)),
    sa.Column("archive_id", sa.String(36)),
    sa.Column("idle_stop_minutes", sa.Integer),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("status_reason", sa.Text),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("node", sa.String(25)),
    sa.Column("preview_url", sa.String(500)),
    sa.Column("latest_snapshot_id", sa.String(255)),
    sa.Column("snapshot_bytes", sa.BigInteger),
    sa.Column("snapshot_taken_at", UtcTime),
    sa.Column("snapshot_expires_at", UtcTime),
    sa.Column("storage_counted_until", UtcTime),
    sa.Column("expiry_told_at", UtcTime),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
    sa.Column("started_at", UtcTime),
    sa.Column("stopped_at", UtcTime),
    sa.Column("timeout_at", UtcTime),
    sa.Column("recycled_at", UtcTime),
    sa.Column("last_seen_at", UtcTime),
    sa.Column("last_used_at", UtcTime),
)

sandbox_usage = sa.Table(
    "sandbox_usage",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("usage_id", sa.String(25), nullable=False),
    sa.Column("sandbox_id", sa.String(25), nullable=False),
    sa.Column("user_account_id", sa.String(12), nullable=False),
    sa.Column("project_id", sa.String(25)),
    sa.Column("service_type", sa.String(50), nullable=False),
    sa.Column("start_time", UtcTime, nullable=False),
    sa.Column("end_time", UtcTime),
    sa.Column("end_reason", sa.String(255)),
    sa.Column("running_seconds", sa.Integer, nullable=False),
    sa.Column("cpu_hours", sa.Double, nullable=False),
    sa.Column("memory_hours", sa.Double, nullable=False),
    sa.Column("storage_hours", sa.Double, nullable=False),
    sa.Column("cpu", sa.Double, nullable=False),
    sa.Column("memory_gb", sa.Double, nullable=False),
    sa.Column("storage_gb", sa.Double, nullable=False),
    sa.Column("hourly_rate", Money, nullable=False),
    sa.Column("cost", Money, nullable=False),
    sa.Column("is_billed", sa.Boolean, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("deadline_at", UtcTime),
)
"""A sandbox has an open row exactly while it is running. Its snapshot's storage is added up to
`storage_counted_until`, as closed rows. `is_billed` once all of a closed row is on bills."""

sandbox_metrics = sa.Table(
    "sandbox_metrics",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("metric_id", sa.String(25), nullable=False),
    sa.Column("sandbox_id", sa.String(36), nullable=False),
    sa.Column("timestamp", UtcTime, nullable=False),
    sa.Column("cpu_utilization", sa.Double, nullable=False),
    sa.Column("memory_utilization", sa.Double, nullable=False),
    sa.Column("storage_utilization", sa.Double, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
)

billing_records = sa.Table(
    "billing_records",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("billing_id", sa.String(25), nullable=False),
    sa.Column("usage_id", sa.String(25), nullable=False),
    sa.Column("user_account_id", sa.String(12), nullable=False),
    sa.Column("project_id", sa.String(25)),
    sa.Column("sandbox_id", sa.String(25)),
    sa.Column("billing_date", UtcDay, nullable=False),
    sa.Column("service_type", sa.String(50), nullable=False),
    sa.Column("usage_seconds", sa.Integer, nullable=False),
    sa.Column("hourly_rate", Money, nullable=False),
    sa.Column("amount", Money, nullable=False),
    sa.Column("description", sa.Text),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("corrects", sa.String(25)),
    sa.Column("cpu_hours", Money, nullable=False),
    sa.Column("memory_hours", Money, nullable=False),
    sa.Column("storage_hours", Money, nullable=False),
)
"""One row for each usage, day and service type, and those that correct it. Rows never change."""

variables = sa.Table(
    "variables",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("variable_id", sa.String(25), nullable=False),
    sa.Column("owner_account_id", sa.String(12), nullable=False),
    sa.Column("holder_id", sa.String(25), nullable=False),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("is_secret", sa.Boolean, nullable=False),
    sa.Column("encrypted", sa.Text, nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
)
"""`holder_id` is a project or a sandbox, which has at most one of each name."""

pending_signups = sa.Table(
    "pending_signups",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("signup_id", sa.String(25), nullable=False),
    sa.Column("email", sa.String(255), nullable=False),
    sa.Column("username", sa.String(100), nullable=False),
    sa.Column("full_name", sa.String(255)),
    sa.Column("verification_token", sa.String(255), nullable=False),
    sa.Column("password_hash", sa.String(255), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
)

login_failures = sa.Table(
    "login_failures",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("window_ends_at", UtcTime, nullable=False),
)
"""Failed logins in a window of time; `key` is a hash of the counter's key."""

login_networks = sa.Table(
    "login_networks",
    metadata,
    sa.Column("account_id", sa.String(12), primary_key=True),
    sa.Column("network", sa.String(64), primary_key=True),
    sa.Column("last_login_at", UtcTime, nullable=False),
)
"""The networks that each account has logged in from."""

jobs = job_table(metadata)

events = event_table(metadata)
"""The history of all of these, written in the transaction of each change."""
