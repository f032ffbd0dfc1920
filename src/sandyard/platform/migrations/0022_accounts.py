"""Accounts and what belongs to them, events and the job leases."""

import sqlalchemy as sa

from sandyard.kit.sql.shared_tables import (
    JSON,
    MONEY,
    TIME,
    belongs_to,
    byte_ordered,
    create_event_table,
    create_index,
    create_indexes,
    create_job_table,
    create_numbered_table,
    create_table,
    create_unique_index,
    drop_tables,
    flag,
    made,
    numbers,
    optional,
    sequence,
)

revision = "0022"
down_revision = None

_TABLES = (
    *("users", "projects", "templates", "api_keys", "notifications", "pending_signups"),
    *("variables", "login_failures", "login_networks", "jobs", "events"),
)
_UNCLEARED = "deleted_at IS NOT NULL AND cleared_at IS NULL"


def upgrade() -> None:
    _users()
    _projects()
    _templates()
    _api_keys()
    _notifications()
    _pending_signups()
    _variables()
    _logins()
    create_job_table()
    create_event_table(of_accounts=True)


def downgrade() -> None:
    drop_tables(*reversed(_TABLES))


def _users() -> None:
    create_numbered_table(
        "users",
        sa.Column("account_id", sa.String(12), nullable=False, unique=True),
        sa.Column("email", byte_ordered(255), nullable=False, unique=True),
        sa.Column("username", byte_ordered(100), nullable=False, unique=True),
        sa.Column("password_hash", sa.String(255), nullable=False),
        sa.Column("full_name", sa.String(255)),
        sa.Column("role", sa.String(50), nullable=False, server_default="user"),
        flag("is_active", default=True),
        flag("is_verified"),
        *optional(sa.String(255), "verification_token", "reset_token"),
        *optional(TIME, "reset_token_expiry", "last_login", "last_password_reset_request"),
        sa.Column("token_version", sa.Integer, nullable=False, server_default="0"),
        sa.Column("spend_threshold", MONEY),
        sa.Column("spend_notified_at", TIME),
        *made("created_at", "updated_at"),
        sequence(),
        *optional(TIME, "deleted_at", "cleared_at"),
    )
    create_index("users", "lower(username)", name="unique_username_in_any_case", unique=True)
    create_index("users", "reset_token", unique=True)
    create_index("users", "created_at, id")
    create_index("users", "account_id", name="users_who_are_admins", where="role = 'admin'")
    create_index("users", "account_id", name="users_uncleared", where=_UNCLEARED)


def _projects() -> None:
    create_numbered_table(
        "projects",
        sa.Column("project_id", sa.String(25), nullable=False, unique=True),
        sa.Column("name", byte_ordered(255), nullable=False),
        sa.Column("description", sa.Text),
        belongs_to("owner_account_id", "users.account_id", length=12),
        sa.Column("status", sa.String(20), nullable=False, server_default="active"),
        flag("is_default"),
        *made("created_at", "updated_at"),
        sequence(),
        *optional(TIME, "deleted_at", "cleared_at"),
    )
    create_unique_index(
        "projects",
        "owner_account_id, name",
        "unique_project_name_per_account",
        "deleted_at IS NULL",
    )
    create_unique_index(
        "projects", "owner_account_id", "one_default_project_per_account", "is_default"
    )
    create_index("projects", "owner_account_id, created_at, id")
    create_index("projects", "project_id", name="projects_uncleared", where=_UNCLEARED)


def _templates() -> None:
    create_numbered_table(
        "templates",
        sa.Column("template_id", sa.String(25), nullable=False, unique=True),
        sa.Column("name", byte_ordered(255), nullable=False),
        sa.Column("description", sa.Text),
        sa.Column("category", sa.String(100), nullable=False),
        sa.Column("language", sa.String(100), nullable=False),
        *numbers("min_cpu_required", "min_memory_required", kind=sa.Double, default="1.0"),
        flag("is_official"),
        flag("is_public"),
        belongs_to("owner_account_id", "users.account_id", length=12, required=False),
        sa.Column("repository_url", sa.String(500), nullable=False),
        sa.Column("repository_ref", sa.String(200)),
        sa.Column("repository_folder", sa.String(500)),
        sa.Column("repository_secret", sa.String(128)),
        sa.Column("network", sa.String(10)),
        sa.Column("environment", sa.String(64)),
        sa.Column("warm_machines", sa.Integer, nullable=False, server_default="0"),
        sa.Column("archives", JSON),
        sa.Column("archive_bytes", sa.BigInteger),
        sa.Column("archived_by", sa.String(25)),
        sa.Column("storage_counted_until", TIME),
        sa.Column("made_from", sa.String(25)),
        *optional(sa.Text, "start_command", "ready_command", "working_folder"),
        sa.Column("default_user", sa.String(32)),
        *optional(JSON, "build_variables", "tags"),
        *made("created_at", "updated_at"),
        sequence(),
        sa.Column("deleted_at", TIME),
        sa.CheckConstraint(
            "(is_official AND owner_account_id IS NULL)"
            " OR (NOT is_official AND owner_account_id IS NOT NULL)",
            name="official_templates_have_no_owner",
        ),
    )
    create_unique_index(
        "templates",
        "owner_account_id, name",
        "unique_template_name_per_owner",
        "deleted_at IS NULL",
    )
    create_unique_index(
        "templates",
        "name",
        "unique_official_template_name",
        "owner_account_id IS NULL AND deleted_at IS NULL",
    )
    create_index("templates", "owner_account_id, created_at, id")
    create_index("templates", "created_at, id", where="is_official OR is_public")
    create_index("templates", "storage_counted_until", where="storage_counted_until IS NOT NULL")


def _api_keys() -> None:
    create_numbered_table(
        "api_keys",
        sa.Column("api_key", sa.String(50), nullable=False),
        sa.Column("key_id", sa.String(25), nullable=False, unique=True),
        belongs_to("user_account_id", "users.account_id", length=12),
        sa.Column("name", byte_ordered(255), nullable=False),
        sa.Column("description", sa.Text),
        sa.Column("key_hash", sa.String(64), nullable=False, unique=True),
        flag("is_active", default=True),
        sa.Column("last_used_at", TIME),
        sa.Column("scope", sa.String(10), nullable=False, server_default="admin"),
        sa.Column("expires_at", TIME),
        *made("created_at", "updated_at"),
        sequence(),
        sa.Column("deleted_at", TIME),
    )
    create_index("api_keys", "api_key")
    create_unique_index(
        "api_keys", "user_account_id, name", "unique_api_key_name_per_user", "deleted_at IS NULL"
    )
    create_index("api_keys", "user_account_id, created_at, id")


def _notifications() -> None:
    create_numbered_table(
        "notifications",
        sa.Column("notification_id", sa.String(25), nullable=False, unique=True),
        belongs_to("user_account_id", "users.account_id", length=12),
        sa.Column("title", sa.String(255), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("type", sa.String(50), nullable=False, server_default="info"),
        flag("is_read"),
        sa.Column("related_entity_type", sa.String(100)),
        sa.Column("related_entity_id", sa.String(255)),
        *made("created_at"),
        sequence(),
        sa.Column("deleted_at", TIME),
    )
    create_index("notifications", "user_account_id, created_at, id")


def _pending_signups() -> None:
    create_numbered_table(
        "pending_signups",
        sa.Column("signup_id", sa.String(25), nullable=False, unique=True),
        sa.Column("email", sa.String(255), nullable=False),
        sa.Column("username", sa.String(100), nullable=False),
        sa.Column("full_name", sa.String(255)),
        sa.Column("verification_token", sa.String(255), nullable=False, unique=True),
        sa.Column("password_hash", sa.String(255), nullable=False),
        *made("created_at"),
        sequence(),
        sa.Column("expires_at", TIME, nullable=False),
    )
    create_indexes("pending_signups", "email", "expires_at")


def _variables() -> None:
    create_numbered_table(
        "variables",
        sa.Column("variable_id", sa.String(25), nullable=False, unique=True),
        sa.Column("owner_account_id", sa.String(12), nullable=False),
        sa.Column("holder_id", sa.String(25), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("is_secret", sa.Boolean, nullable=False),
        sa.Column("encrypted", sa.Text, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("holder_id", "name", name="one_variable_of_a_name"),
    )
    create_index("variables", "owner_account_id", name="variables_of_account")


def _logins() -> None:
    create_table(
        "login_failures",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("window_ends_at", TIME, nullable=False),
    )
    create_index("login_failures", "window_ends_at")
    create_table(
        "login_networks",
        sa.Column("account_id", sa.String(12), primary_key=True),
        sa.Column("network", sa.String(64), primary_key=True),
        sa.Column("last_login_at", TIME, nullable=False),
    )
    create_index("login_networks", "last_login_at")
