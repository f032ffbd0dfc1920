"""Published versions of projects, whose files stay while versions go, and their host names."""

import sqlalchemy as sa

from sandyard.kit.sql.shared_tables import (
    TIME,
    belongs_to,
    byte_ordered,
    create_index,
    create_table,
    drop_tables,
)

revision = "0007"
down_revision = "0006"
oldest_code = "0004"


def upgrade() -> None:
    create_table(
        "publications",
        _project(),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("root", sa.String(512), nullable=False),
        sa.Column("fallback", sa.String(512)),
        sa.Column("published_at", TIME, nullable=False),
    )
    create_table(
        "published_files",
        _project(),
        sa.Column("path", byte_ordered(512), primary_key=True),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    create_index("published_files", "project_id, hash", name="published_files_hash")
    create_table(
        "published_domains",
        sa.Column("domain", sa.String(253), primary_key=True),
        belongs_to("project_id", "previews.project_id", length=25),
    )
    create_index("published_domains", "project_id", name="published_domains_project")


def _project() -> sa.Column[str]:
    column = belongs_to("project_id", "previews.project_id", length=25)
    column.primary_key = True
    return column


def downgrade() -> None:
    drop_tables("published_domains", "published_files", "publications")
