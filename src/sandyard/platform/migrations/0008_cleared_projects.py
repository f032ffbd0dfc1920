"""Which deleted projects still have something in other parts, found without reading the others."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
oldest_code = "0002"

TIME = sa.DateTime(timezone=True).with_variant(sa.String(27), "sqlite")
UNCLEARED = sa.text("deleted_at IS NOT NULL AND cleared_at IS NULL")


def upgrade() -> None:
    """None is cleared yet: what version 0.1.0 kept of deleted projects is still there."""
    schema = op.get_context().version_table_schema
    op.add_column("projects", sa.Column("cleared_at", TIME), schema=schema)
    op.create_index(
        "projects_uncleared",
        "projects",
        ["project_id"],
        schema=schema,
        sqlite_where=UNCLEARED,
        postgresql_where=UNCLEARED,
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_index("projects_uncleared", "projects", schema=schema)
    op.drop_column("projects", "cleared_at", schema=schema)
