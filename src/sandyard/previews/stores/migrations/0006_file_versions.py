"""Earlier versions of files: what was replaced, its contents once by hash, and who made them."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import (
    TIME,
    belongs_to,
    byte_ordered,
    create_index,
    create_table,
    drop_tables,
    schema,
)

revision = "0006"
down_revision = "0005"
oldest_code = "0004"


def upgrade() -> None:
    """Servers of 0.2.0 go on with the current files; versions begin with the current one."""
    create_table(
        "file_versions",
        _project(),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("author", sa.String(200), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("files", sa.Integer, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
    )
    create_table(
        "past_files",
        _project(),
        sa.Column("path", byte_ordered(512), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("until", sa.Integer, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
    )
    create_index("past_files", "project_id, until", name="past_files_until")
    create_index("past_files", "project_id, hash", name="past_files_hash")
    create_table(
        "past_contents",
        _project(),
        sa.Column("hash", sa.String(64), primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
    )
    # Listings without contents, which lie between the columns of a row.
    entry = "project_id, is_deleted, path, size, version"
    create_index("project_files", entry, name="project_files_entries")
    create_index("past_contents", "project_id, size", name="past_contents_size")
    op.execute(
        f"INSERT INTO {schema()}.file_versions "  # noqa: S608 - ours
        "SELECT p.project_id, p.files_version, 'system', MAX(f.updated_at), '', "
        "SUM(CASE WHEN f.is_deleted THEN 0 ELSE 1 END), SUM(f.size) "
        f"FROM {schema()}.previews p JOIN {schema()}.project_files f "
        "ON f.project_id = p.project_id GROUP BY p.project_id, p.files_version"
    )


def _project() -> sa.Column[str]:
    column = belongs_to("project_id", "previews.project_id", length=25)
    column.primary_key = True
    return column


def downgrade() -> None:
    op.drop_index("project_files_entries", "project_files", schema=schema())
    drop_tables("past_contents", "past_files", "file_versions")
