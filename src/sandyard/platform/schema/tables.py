"""The Platform's SQL tables."""

from functools import partial

import sqlalchemy as sa

from sandyard.kit.sql.column_types import (
    Exact,
    Json,
    Money,
    UtcDay,
    UtcTime,
    Varchar,
    byte_ordered,
)
from sandyard.kit.sql.columns import (
    belongs_to,
    event_table,
    flag,
    identity,
    index,
    indexes,
    made,
    metadata_of,
    numbered_table,
    numbers,
    optional,
    required,
    sequence,
    unique_index,
)
from sandyard.kit.sql.idempotency import record_table
from sandyard.kit.sql.job_leases import job_table

SCHEMA = "platform"
_UNCLEARED = "deleted_at IS NOT NULL AND cleared_at IS NULL"
_LIVE = "deleted_at IS NULL"
_COUNTED = "storage_counted_until IS NOT NULL"

metadata = metadata_of(SCHEMA)
_table = partial(numbered_table, metadata)

users = _table(
    "users",
    identity("account_id", 12),
    sa.Column("email", byte_ordered(255), nullable=False, unique=True),
    sa.Column("username", byte_ordered(100), nullable=False, unique=True),
    *required(Varchar(255), "password_hash"),
    *optional(Varchar(255), "full_name", "verification_token", "reset_token"),
    sa.Column("role", Varchar(50), nullable=False, server_default="user"),
    flag("is_active", default=True),
    flag("is_verified"),
    *numbers("token_version", kind=sa.Integer, default="0"),
    *optional(UtcTime, "reset_token_expiry", "last_login", "last_password_reset_request"),
    *optional(Money, "spend_threshold"),
    *made("created_at", "updated_at"),
    sequence(),
    *optional(UtcTime, "spend_notified_at", "deleted_at", "cleared_at"),
    sa.CheckConstraint("role IN ('user', 'admin')", "known_roles"),
    index("lower(username)", name="unique_username_in_any_case", unique=True),
    index("reset_token", unique=True),
    index("verification_token", where="verification_token IS NOT NULL", unique=True),
    index("created_at, id"),
    index("account_id", name="users_who_are_admins", where="role = 'admin'"),
    index("account_id", name="users_uncleared", where=_UNCLEARED),
)
"""Tokens are SHA-256 in hexadecimal. A login is valid while its `token_version` is the row's.
Nothing uses `spend_notified_at`."""

projects = _table(
    "projects",
    identity("project_id"),
    *required(byte_ordered(255), "name"),
    *optional(sa.Text, "description"),
    belongs_to(users.c.account_id, "owner_account_id"),
    sa.Column("status", Varchar(20), nullable=False, server_default="active"),
    flag("is_default"),
    *made("created_at", "updated_at"),
    sequence(),
    *optional(UtcTime, "deleted_at", "cleared_at"),
    sa.CheckConstraint("status IN ('active', 'archived')", "known_project_states"),
    unique_index("owner_account_id, name", "unique_project_name_per_account", _LIVE),
    unique_index("owner_account_id", "one_default_project_per_account", "is_default"),
    index("owner_account_id, created_at, id"),
    index("project_id", name="projects_uncleared", where=_UNCLEARED),
)

templates = _table(
    "templates",
    identity("template_id"),
    *required(byte_ordered(255), "name"),
    *required(Varchar(100), "category", "language"),
    *numbers("min_cpu_required", "min_memory_required", kind=sa.Double, default="1.0"),
    flag("is_official"),
    flag("is_public"),
    belongs_to(users.c.account_id, "owner_account_id", nullable=True),
    *required(Varchar(500), "repository_url"),
    *optional(Varchar(200), "repository_ref"),
    *optional(Varchar(500), "repository_folder"),
    *optional(Varchar(128), "repository_secret"),
    *optional(Varchar(10), "network"),
    *optional(Varchar(64), "environment"),
    *optional(Varchar(20), "isolation"),
    *numbers("warm_machines", kind=sa.Integer, default="0"),
    *optional(sa.BigInteger, "archive_bytes"),
    *optional(Varchar(25), "archived_by", "made_from"),
    *optional(sa.Text, "description", "start_command", "ready_command", "working_folder"),
    *optional(Varchar(32), "default_user"),
    *optional(Json, "archives", "build_variables", "tags"),
    *made("created_at", "updated_at"),
    sequence(),
    *optional(UtcTime, "storage_counted_until", "deleted_at"),
    sa.CheckConstraint(
        "(is_official AND owner_account_id IS NULL)"
        " OR (NOT is_official AND owner_account_id IS NOT NULL)",
        "official_templates_have_no_owner",
    ),
    unique_index("owner_account_id, name", "unique_template_name_per_owner", _LIVE),
    unique_index("name", "unique_official_template_name", f"owner_account_id IS NULL AND {_LIVE}"),
    index("owner_account_id, created_at, id"),
    index("created_at, id", where="is_official OR is_public"),
    index("storage_counted_until", where=_COUNTED),
)
"""A template has no owner exactly if it is official."""

images = _table(
    "images",
    identity("image_id"),
    belongs_to(users.c.account_id, "owner_account_id"),
    *required(Varchar(500), "reference"),
    *required(Varchar(20), "status"),
    *optional(sa.Text, "reason", "user_name", "folder"),
    *optional(Varchar(71), "digest"),
    *optional(sa.BigInteger, "size_bytes", "unpacked_bytes", "pulled_bytes", "total_bytes"),
    *optional(Json, "parts", "command", "ports"),
    *made("created_at", "updated_at"),
    *optional(UtcTime, "storage_counted_until", "seen_at", "deleted_at"),
    sequence(),
    *indexes("owner_account_id, created_at, id", "storage_counted_until"),
    index("id", name="images_pulling", where="status = 'pulling'"),
)

api_keys = _table(
    "api_keys",
    *required(Varchar(50), "api_key"),
    identity("key_id"),
    belongs_to(users.c.account_id, "user_account_id"),
    *required(byte_ordered(255), "name"),
    *optional(sa.Text, "description"),
    identity("key_hash", 64),
    flag("is_active", default=True),
    sa.Column("scope", Varchar(10), nullable=False, server_default="admin"),
    *made("created_at", "updated_at"),
    sequence(),
    *optional(UtcTime, "expires_at", "last_used_at", "deleted_at"),
    index("api_key"),
    unique_index("user_account_id, name", "unique_api_key_name_per_user", _LIVE),
    index("user_account_id, created_at, id"),
)
"""`api_key` is the beginning of the key, for people; the credential is looked up by `key_hash`."""

volumes = _table(
    "volumes",
    identity("volume_id"),
    belongs_to(users.c.account_id, "owner_account_id"),
    *optional(Varchar(25), "project_id", "copied_from"),
    *required(byte_ordered(64), "name"),
    *required(sa.BigInteger, "size_bytes"),
    *required(Varchar(255), "node"),
    flag("is_read_only"),
    *made("created_at", "updated_at"),
    *optional(UtcTime, "storage_counted_until", "deleted_at"),
    sequence(),
    unique_index("owner_account_id, name", "unique_volume_name", _LIVE),
    *indexes("owner_account_id, created_at, id", "storage_counted_until"),
)

ssh_keys = _table(
    "ssh_keys",
    identity("ssh_key_id"),
    belongs_to(users.c.account_id, "user_account_id"),
    *required(byte_ordered(255), "name"),
    *required(sa.Text, "public_key"),
    *required(Varchar(50), "fingerprint"),
    *optional(Varchar(25), "api_key_id"),
    *made("created_at"),
    sequence(),
    *optional(UtcTime, "deleted_at"),
    unique_index("user_account_id, name", "unique_ssh_key_name", _LIVE),
    unique_index("user_account_id, fingerprint", "unique_ssh_key_fingerprint", _LIVE),
    index("user_account_id, created_at, id"),
)

ssh_host_keys = _table(
    "ssh_host_keys",
    sa.Column("generation", sa.Integer, nullable=False, unique=True),
    *required(sa.Text, "encrypted"),
    *made("created_at"),
)
"""Keys of the SSH server, of which the newest ones are announced before they are used."""

notifications = _table(
    "notifications",
    identity("notification_id"),
    belongs_to(users.c.account_id, "user_account_id"),
    *required(Varchar(255), "title"),
    *required(sa.Text, "message"),
    sa.Column("type", Varchar(50), nullable=False, server_default="info"),
    flag("is_read"),
    *optional(Varchar(100), "related_entity_type"),
    *optional(Varchar(255), "related_entity_id"),
    *made("created_at"),
    sequence(),
    *optional(UtcTime, "deleted_at"),
    sa.CheckConstraint("type IN ('info', 'warning', 'error', 'success')", "known_types"),
    index("user_account_id, created_at, id"),
)

sandboxes = _table(
    "sandboxes",
    identity("sandbox_id"),
    *required(byte_ordered(100), "name"),
    *optional(sa.Text, "description", "status_reason"),
    belongs_to(templates.c.template_id, "template_id"),
    belongs_to(users.c.account_id, "owner_account_id"),
    belongs_to(projects.c.project_id, "project_id", nullable=True),
    *numbers("cpu_spec", "memory_spec", kind=sa.Double, default="1.0"),
    *numbers("max_running_seconds", kind=sa.Integer, default="86400"),
    *numbers("attempt", "access_version", kind=sa.Integer, default="0"),
    *optional(sa.Integer, "idle_stop_minutes"),
    sa.Column("status", Varchar(20), nullable=False, server_default="created"),
    sa.Column("network", Varchar(10), nullable=False, server_default="none"),
    *optional(Varchar(64), "environment"),
    *optional(Varchar(20), "isolation", "program_policy"),
    *optional(Varchar(500), "folder", "preview_url"),
    *optional(Varchar(36), "archive_id"),
    *optional(Varchar(25), "node"),
    *optional(Varchar(255), "latest_snapshot_id"),
    *optional(sa.BigInteger, "snapshot_bytes"),
    flag("is_public"),
    flag("wake_on_request"),
    flag("recycle_on_timeout"),
    flag("keeps_memory"),
    flag("snapshot_has_memory"),
    *optional(Json, "metadata", "traffic_rules", "program", "public_ports", "volumes"),
    *optional(UtcTime, "snapshot_taken_at", "snapshot_expires_at", "storage_counted_until"),
    *made("created_at", "updated_at"),
    sequence(),
    *optional(UtcTime, "started_at", "stopped_at", "timeout_at", "recycled_at", "expiry_told_at"),
    *optional(UtcTime, "last_seen_at", "last_used_at"),
    sa.CheckConstraint(
        "status IN ('created', 'starting', 'running', 'stopped', 'timeout', 'recycled')",
        "known_sandbox_states",
    ),
    unique_index("owner_account_id, name", "unique_sandbox_name_per_owner", "status <> 'recycled'"),
    *indexes(
        "owner_account_id, created_at, id",
        "owner_account_id, name, id",
        "owner_account_id, updated_at, id",
        "template_id",
        "project_id",
        "status, id",
    ),
    index("snapshot_expires_at", where="snapshot_expires_at IS NOT NULL"),
    index("storage_counted_until", where=_COUNTED),
    index("node, status", where="status IN ('starting', 'running')"),
    index("latest_snapshot_id", where="latest_snapshot_id IS NOT NULL"),
)

sandbox_usage = _table(
    "sandbox_usage",
    identity("usage_id"),
    belongs_to(sandboxes.c.sandbox_id, "sandbox_id", nullable=True),
    belongs_to(users.c.account_id, "user_account_id"),
    belongs_to(projects.c.project_id, "project_id", nullable=True),
    sa.Column("service_type", Varchar(50), nullable=False, server_default="sandbox_runtime"),
    *required(UtcTime, "start_time"),
    *optional(UtcTime, "end_time", "deadline_at"),
    *optional(Varchar(255), "end_reason"),
    *numbers("running_seconds", kind=sa.Integer, default="0"),
    *optional(sa.BigInteger, "milliseconds"),
    *numbers("cpu_hours", "memory_hours", "storage_hours", kind=sa.Double, default="0.0"),
    *numbers("cpu", "memory_gb", "storage_gb", kind=sa.Double, default="0.0"),
    *required(Money, "hourly_rate"),
    *numbers("cost", kind=Money, default="0"),
    *optional(Exact, "exact_rate"),
    flag("is_billed"),
    *made("created_at"),
    sequence(),
    index("id", name="sandbox_usage_unbilled", where="is_billed = false"),
    unique_index("sandbox_id, service_type", "one_open_usage_per_sandbox", "end_time IS NULL"),
    *indexes("sandbox_id", "user_account_id, start_time, id"),
    *indexes("project_id", "start_time", "end_time"),
    index("user_account_id, end_time, id", name="usage_of_account_by_end"),
)
"""A sandbox has an open row exactly while it is running. Its snapshot's storage is added up to
`storage_counted_until`, as closed rows. `is_billed` once all of a closed row is on bills."""

sandbox_metrics = _table(
    "sandbox_metrics",
    identity("metric_id"),
    sa.Column("sandbox_id", Varchar(36), sa.ForeignKey(sandboxes.c.sandbox_id), nullable=False),
    *required(UtcTime, "timestamp"),
    *numbers("cpu_utilization", "memory_utilization", kind=sa.Double, default="0.0"),
    *numbers("storage_utilization", kind=sa.Double, default="0.0"),
    *made("created_at"),
    *indexes("sandbox_id, timestamp", "timestamp"),
)

billing_records = _table(
    "billing_records",
    identity("billing_id"),
    belongs_to(sandbox_usage.c.usage_id, "usage_id", nullable=True),
    belongs_to(users.c.account_id, "user_account_id"),
    belongs_to(projects.c.project_id, "project_id", nullable=True),
    belongs_to(sandboxes.c.sandbox_id, "sandbox_id", nullable=True),
    sa.Column("corrects", Varchar(25), sa.ForeignKey(f"{SCHEMA}.billing_records.billing_id")),
    *required(UtcDay, "billing_date"),
    *required(Varchar(50), "service_type"),
    *numbers("usage_seconds", kind=sa.Integer, default="0"),
    *optional(sa.BigInteger, "usage_milliseconds"),
    *required(Money, "hourly_rate", "amount"),
    *numbers("cpu_hours", "memory_hours", "storage_hours", kind=Money, default="0"),
    *optional(sa.Text, "description"),
    *made("created_at"),
    sequence(),
    unique_index(
        "usage_id, billing_date, service_type", "one_bill_per_usage_and_day", "corrects IS NULL"
    ),
    *indexes("user_account_id, billing_date, id", "project_id", "sandbox_id", "billing_date"),
)
"""One row for each usage, day and service type, those that correct it, and charges, which have no
usage. Rows never change."""

variables = _table(
    "variables",
    identity("variable_id"),
    *required(Varchar(12), "owner_account_id"),
    *required(Varchar(25), "holder_id"),
    *required(Varchar(255), "name"),
    *required(sa.Boolean, "is_secret"),
    *required(sa.Text, "encrypted"),
    *optional(Json, "binding"),
    *required(UtcTime, "created_at", "updated_at"),
    *required(sa.BigInteger, "sequence"),
    *optional(UtcTime, "budget_reached_at"),
    sa.UniqueConstraint("holder_id", "name", name="one_variable_of_a_name"),
    index("owner_account_id", name="variables_of_account"),
)
"""`holder_id` is a project or a sandbox, which has at most one of each name."""

_of_variable = sa.ForeignKey(variables.c.variable_id, ondelete="CASCADE")
secret_uses = sa.Table(
    "secret_uses",
    metadata,
    sa.Column("variable_id", Varchar(25), _of_variable, primary_key=True),
    sa.Column("run", Varchar(64), primary_key=True),
    *numbers("requests", "bytes", kind=sa.BigInteger, default="0"),
)
"""How much each run of a sandbox has used each secret that is bound to hosts."""

pending_signups = _table(
    "pending_signups",
    identity("signup_id"),
    *required(Varchar(255), "email", "password_hash"),
    *required(Varchar(100), "username"),
    *optional(Varchar(255), "full_name"),
    identity("verification_token", 255),
    *made("created_at"),
    sequence(),
    *required(UtcTime, "expires_at"),
    *indexes("email", "expires_at"),
)

login_failures = sa.Table(
    "login_failures",
    metadata,
    sa.Column("key", Varchar(64), primary_key=True),
    *required(sa.Integer, "failures"),
    *required(UtcTime, "window_ends_at"),
    index("window_ends_at"),
)
"""Failed logins in a window of time; `key` is a hash of the counter's key."""

login_networks = sa.Table(
    "login_networks",
    metadata,
    sa.Column("account_id", Varchar(12), primary_key=True),
    sa.Column("network", Varchar(64), primary_key=True),
    *required(UtcTime, "last_login_at"),
    index("last_login_at"),
)
"""The networks that each account has logged in from."""

jobs = job_table(metadata)

idempotency_records = record_table(metadata)

events = event_table(metadata, of_accounts=True)
"""The history of all of these, written in the transaction of each change."""
