"""Images of accounts, and usages of no sandbox, such as their storage."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import (
    JSON,
    TIME,
    belongs_to,
    create_index,
    create_indexes,
    create_numbered_table,
    drop_tables,
    edit_definition,
    is_postgres,
    made,
    optional,
    schema,
    sequence,
)

revision = "0031"
down_revision = "0030"
oldest_code = "0023"

_ANY, _REQUIRED = "sandbox_id VARCHAR(25),", "sandbox_id VARCHAR(25) NOT NULL,"


def upgrade() -> None:
    create_numbered_table(
        "images",
        sa.Column("image_id", sa.String(25), nullable=False, unique=True),
        belongs_to("owner_account_id", "users.account_id", length=12),
        sa.Column("reference", sa.String(500), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        *optional(sa.Text, "reason", "user_name", "folder"),
        sa.Column("digest", sa.String(71)),
        *optional(sa.BigInteger, "size_bytes", "unpacked_bytes", "pulled_bytes", "total_bytes"),
        *optional(JSON, "parts", "command", "ports"),
        *made("created_at", "updated_at"),
        *optional(TIME, "storage_counted_until", "seen_at", "deleted_at"),
        sequence(),
    )
    create_indexes("images", "owner_account_id, created_at, id", "storage_counted_until")
    create_index("images", "id", name="images_pulling", where="status = 'pulling'")
    _set_nullable(nullable=True)


def downgrade() -> None:
    for table in ("billing_records", "sandbox_usage"):
        op.execute(
            f"DELETE FROM {schema()}.{table} WHERE sandbox_id IS NULL AND usage_id IS NOT NULL"  # noqa: S608 - ours
        )
    _set_nullable(nullable=False)
    drop_tables("images")


def _set_nullable(*, nullable: bool) -> None:
    if is_postgres():
        op.alter_column("sandbox_usage", "sandbox_id", nullable=nullable, schema=schema())
    else:
        old, new = (_REQUIRED, _ANY) if nullable else (_ANY, _REQUIRED)
        edit_definition("sandbox_usage", lambda sql: sql.replace(old, new))
