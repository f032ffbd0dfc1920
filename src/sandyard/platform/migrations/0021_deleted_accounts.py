"""Accounts that were deleted, and of which of them something is still to be removed."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
oldest_code = "0002"

TIME = sa.DateTime(timezone=True).with_variant(sa.String(27), "sqlite")
UNCLEARED = sa.text("deleted_at IS NOT NULL AND cleared_at IS NULL")


def upgrade() -> None:
    """None that is there is deleted."""
    schema = op.get_context().version_table_schema
    op.add_column("users", sa.Column("deleted_at", TIME), schema=schema)
    op.add_column("users", sa.Column("cleared_at", TIME), schema=schema)
    op.create_index(
        "users_uncleared",
        "users",
        ["account_id"],
        schema=schema,
        sqlite_where=UNCLEARED,
        postgresql_where=UNCLEARED,
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_index("users_uncleared", "users", schema=schema)
    for column in ("cleared_at", "deleted_at"):
        op.drop_column("users", column, schema=schema)
