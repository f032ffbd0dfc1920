"""Volumes of accounts, and those that sandboxes mount."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import (
    JSON,
    TIME,
    belongs_to,
    byte_ordered,
    create_indexes,
    create_numbered_table,
    create_unique_index,
    drop_tables,
    flag,
    made,
    optional,
    schema,
    sequence,
)

revision = "0036"
down_revision = "0035"
oldest_code = "0023"


def upgrade() -> None:
    create_numbered_table(
        "volumes",
        sa.Column("volume_id", sa.String(25), nullable=False, unique=True),
        belongs_to("owner_account_id", "users.account_id", length=12),
        sa.Column("project_id", sa.String(25)),
        sa.Column("name", byte_ordered(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("node", sa.String(255), nullable=False),
        sa.Column("copied_from", sa.String(25)),
        flag("is_read_only"),
        *made("created_at", "updated_at"),
        *optional(TIME, "storage_counted_until", "deleted_at"),
        sequence(),
    )
    create_unique_index(
        "volumes", "owner_account_id, name", "unique_volume_name", "deleted_at IS NULL"
    )
    create_indexes("volumes", "owner_account_id, created_at, id", "storage_counted_until")
    op.add_column("sandboxes", sa.Column("volumes", JSON), schema=schema())


def downgrade() -> None:
    op.drop_column("sandboxes", "volumes", schema=schema())
    drop_tables("volumes")
