"""Previews with their files, events and the job leases."""

import sqlalchemy as sa

from sandyard.kit.sql.shared_tables import (
    JSON,
    TIME,
    byte_ordered,
    create_event_table,
    create_index,
    create_job_table,
    create_table,
    drop_tables,
    is_postgres,
    schema,
)

revision = "0004"
down_revision = None


def upgrade() -> None:
    create_table(
        "previews",
        sa.Column("project_id", sa.String(25), primary_key=True),
        sa.Column("account_id", sa.String(12), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("sandbox_info", JSON),
        sa.Column("attempt", sa.String(64)),
        sa.Column("attempt_until", TIME),
        sa.Column("running_until", TIME),
        sa.Column("files_version", sa.Integer, nullable=False),
        sa.Column("sequence", sa.BigInteger if is_postgres() else sa.Integer, nullable=False),
        sa.Column("last_checked", TIME),
    )
    create_index("previews", "account_id, running_until", name="previews_of_account")
    create_index("previews", "running_until", name="previews_running")
    create_index("previews", "attempt")
    project = sa.ForeignKey(f"{schema()}.previews.project_id")
    create_table(
        "project_files",
        sa.Column("project_id", sa.String(25), project, primary_key=True),
        sa.Column("path", byte_ordered(512), primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("is_deleted", sa.Boolean, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
    )
    create_index("project_files", "project_id, version", name="project_files_version")
    create_job_table()
    create_event_table(of_accounts=True)


def downgrade() -> None:
    drop_tables("events", "jobs", "project_files", "previews")
