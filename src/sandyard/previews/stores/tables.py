"""The columns and tables that Previews use, in the Platform's schema; its migrations make them."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from sandyard.kit.sql_types import BIG_ID, UtcTime

metadata = sa.MetaData(schema="platform")

projects = sa.Table(
    "projects",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("project_id", sa.String(25), nullable=False),
    sa.Column("owner_account_id", sa.String(12), nullable=False),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("deleted_at", UtcTime),
    sa.Column("sandbox_id", sa.Text),
    sa.Column("preview_url", sa.Text),
    sa.Column(
        "sandbox_info",
        sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql"),
    ),
    sa.Column("preview_revision", sa.Integer, nullable=False),
    sa.Column("preview_attempt", sa.String(64)),
    sa.Column("preview_attempt_until", UtcTime),
    sa.Column("files_version", sa.Integer, nullable=False),
)
"""`sandbox_id` and `preview_url` are what `sandbox_info` replaces; both are written as long as
they are there."""

users = sa.Table(
    "users",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("account_id", sa.String(12), nullable=False),
)

project_files = sa.Table(
    "project_files",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("project_id", sa.String(25), nullable=False),
    sa.Column("path", sa.String(512), nullable=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("is_deleted", sa.Boolean, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
)
"""One row per path; `version` is of the change set that wrote or deleted it last."""
