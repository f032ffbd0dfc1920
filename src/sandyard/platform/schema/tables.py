"""The Platform's SQL tables, as the queries see them: columns by type. The migrations make them,
with lengths, defaults, keys and indexes."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

from sandyard.kit.sql.column_types import BIG_ID, Json, Money, UtcDay, UtcTime
from sandyard.kit.sql.events import event_table
from sandyard.kit.sql.idempotency import record_table
from sandyard.kit.sql.job_leases import job_table

SCHEMA = "platform"

metadata = sa.MetaData(schema=SCHEMA)


class _Exact(TypeDecorator[Decimal]):
    """A decimal number of any length, as text."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else f"{value:f}"

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Decimal | None:  # noqa: ARG002
        return None if value is None else Decimal(value)


_TYPES: Mapping[str, Any] = {
    "text": sa.String,
    "boolean": sa.Boolean,
    "integer": sa.Integer,
    "big": sa.BigInteger,
    "double": sa.Double,
    "money": Money,
    "exact": _Exact,
    "time": UtcTime,
    "day": UtcDay,
    "json": Json,
}


def _table(name: str, **names_by_type: str) -> sa.Table:
    """With a numeric key, and columns of these names."""
    columns = [
        sa.Column(each, _TYPES[kind])
        for kind, names in names_by_type.items()
        for each in names.split()
    ]
    return sa.Table(name, metadata, sa.Column("id", BIG_ID, primary_key=True), *columns)


users = _table(
    "users",
    text="account_id email username password_hash full_name role verification_token reset_token",
    boolean="is_active is_verified",
    integer="token_version",
    big="sequence",
    money="spend_threshold",
    time="reset_token_expiry last_login last_password_reset_request "
    "created_at updated_at deleted_at cleared_at",
)
"""Tokens are SHA-256 in hexadecimal. A login is valid while its `token_version` is the row's."""

projects = _table(
    "projects",
    text="project_id name description owner_account_id status",
    boolean="is_default",
    big="sequence",
    time="created_at updated_at deleted_at cleared_at",
)

templates = _table(
    "templates",
    text="template_id name description category language owner_account_id repository_url "
    "repository_ref repository_folder repository_secret network environment isolation made_from "
    "start_command ready_command working_folder default_user archived_by",
    boolean="is_official is_public",
    integer="warm_machines",
    big="sequence archive_bytes",
    double="min_cpu_required min_memory_required",
    json="tags archives build_variables",
    time="storage_counted_until created_at updated_at deleted_at",
)
"""A template has no owner exactly if it is official."""

images = _table(
    "images",
    text="image_id owner_account_id reference status reason digest user_name folder",
    big="sequence size_bytes unpacked_bytes pulled_bytes total_bytes",
    json="parts command ports",
    time="storage_counted_until seen_at created_at updated_at deleted_at",
)

api_keys = _table(
    "api_keys",
    text="api_key key_id user_account_id name description key_hash scope",
    boolean="is_active",
    big="sequence",
    time="expires_at last_used_at created_at updated_at deleted_at",
)
"""`api_key` is the beginning of the key, for people; the credential is looked up by `key_hash`."""

volumes = _table(
    "volumes",
    text="volume_id owner_account_id project_id name node copied_from",
    boolean="is_read_only",
    big="sequence size_bytes",
    time="storage_counted_until created_at updated_at deleted_at",
)

ssh_keys = _table(
    "ssh_keys",
    text="ssh_key_id user_account_id name public_key fingerprint api_key_id",
    big="sequence",
    time="created_at deleted_at",
)

ssh_host_keys = _table("ssh_host_keys", text="encrypted", integer="generation", time="created_at")
"""Keys of the SSH server, of which the newest ones are announced before they are used."""

notifications = _table(
    "notifications",
    text="notification_id user_account_id title message type related_entity_type related_entity_id",
    boolean="is_read",
    big="sequence",
    time="created_at deleted_at",
)

sandboxes = _table(
    "sandboxes",
    text="sandbox_id name description template_id owner_account_id project_id network environment "
    "isolation folder archive_id status status_reason node preview_url latest_snapshot_id "
    "program_policy",
    boolean="is_public wake_on_request recycle_on_timeout keeps_memory snapshot_has_memory",
    integer="max_running_seconds idle_stop_minutes attempt access_version",
    big="sequence snapshot_bytes",
    double="cpu_spec memory_spec",
    json="metadata traffic_rules program public_ports volumes",
    time="snapshot_taken_at snapshot_expires_at storage_counted_until expiry_told_at created_at "
    "updated_at started_at stopped_at timeout_at recycled_at last_seen_at last_used_at",
)

sandbox_usage = _table(
    "sandbox_usage",
    text="usage_id sandbox_id user_account_id project_id service_type end_reason",
    boolean="is_billed",
    integer="running_seconds",
    big="sequence milliseconds",
    double="cpu_hours memory_hours storage_hours cpu memory_gb storage_gb",
    money="hourly_rate cost",
    exact="exact_rate",
    time="start_time end_time created_at deadline_at",
)
"""A sandbox has an open row exactly while it is running. Its snapshot's storage is added up to
`storage_counted_until`, as closed rows. `is_billed` once all of a closed row is on bills."""

sandbox_metrics = _table(
    "sandbox_metrics",
    text="metric_id sandbox_id",
    double="cpu_utilization memory_utilization storage_utilization",
    time="timestamp created_at",
)

billing_records = _table(
    "billing_records",
    text="billing_id usage_id user_account_id project_id sandbox_id service_type description "
    "corrects",
    integer="usage_seconds",
    big="sequence usage_milliseconds",
    money="hourly_rate amount cpu_hours memory_hours storage_hours",
    day="billing_date",
    time="created_at",
)
"""One row for each usage, day and service type, those that correct it, and charges, which have no
usage. Rows never change."""

variables = _table(
    "variables",
    text="variable_id owner_account_id holder_id name encrypted",
    boolean="is_secret",
    big="sequence",
    json="binding",
    time="budget_reached_at created_at updated_at",
)
"""`holder_id` is a project or a sandbox, which has at most one of each name."""

secret_uses = sa.Table(
    "secret_uses",
    metadata,
    sa.Column("variable_id", sa.String, primary_key=True),
    sa.Column("run", sa.String, primary_key=True),
    sa.Column("requests", sa.BigInteger),
    sa.Column("bytes", sa.BigInteger),
)
"""How much each run of a sandbox has used each secret that is bound to hosts."""

pending_signups = _table(
    "pending_signups",
    text="signup_id email username full_name verification_token password_hash",
    big="sequence",
    time="created_at expires_at",
)

login_failures = sa.Table(
    "login_failures",
    metadata,
    sa.Column("key", sa.String, primary_key=True),
    sa.Column("failures", sa.Integer),
    sa.Column("window_ends_at", UtcTime),
)
"""Failed logins in a window of time; `key` is a hash of the counter's key."""

login_networks = sa.Table(
    "login_networks",
    metadata,
    sa.Column("account_id", sa.String, primary_key=True),
    sa.Column("network", sa.String, primary_key=True),
    sa.Column("last_login_at", UtcTime),
)
"""The networks that each account has logged in from."""

jobs = job_table(metadata)

idempotency_records = record_table(metadata)

events = event_table(metadata)
"""The history of all of these, written in the transaction of each change."""
