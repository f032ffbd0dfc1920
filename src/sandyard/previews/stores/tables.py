"""Previews' SQL tables, as the queries see them; the migrations make them."""

import sqlalchemy as sa

from sandyard.kit.sql.column_types import Json, UtcTime
from sandyard.kit.sql.events import event_table
from sandyard.kit.sql.job_leases import job_table

SCHEMA = "previews"

metadata = sa.MetaData(schema=SCHEMA)

previews = sa.Table(
    "previews",
    metadata,
    sa.Column("project_id", sa.String(25), primary_key=True),
    sa.Column("account_id", sa.String(12), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("sandbox_id", sa.Text),
    sa.Column("preview_url", sa.Text),
    sa.Column("sandbox_info", Json),
    sa.Column("attempt", sa.String(64)),
    sa.Column("attempt_until", UtcTime),
    sa.Column("running_until", UtcTime),
    sa.Column("files_version", sa.Integer, nullable=False),
    sa.Column("last_checked", UtcTime),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)
"""A row for every project that ever had files or a preview. `created_at` is the project's;
`running_until` is `Preview.running_until`, for queries. `sandbox_info` replaces `sandbox_id` and
`preview_url`; all are written while they exist."""

project_files = sa.Table(
    "project_files",
    metadata,
    sa.Column("project_id", sa.String(25), primary_key=True),
    sa.Column("path", sa.String(512), primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("is_deleted", sa.Boolean, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("updated_at", UtcTime, nullable=False),
)
"""One row per path; `version` is that of the last change set that wrote or deleted it."""

jobs = job_table(metadata)
events = event_table(metadata)
SUBJECTS = (previews.c.project_id,)
"""The subjects of events."""
