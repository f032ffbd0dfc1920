"""Public keys of accounts, and the host keys of the SSH server."""

import sqlalchemy as sa

from sandyard.kit.sql.shared_tables import (
    TIME,
    belongs_to,
    byte_ordered,
    create_index,
    create_numbered_table,
    create_unique_index,
    drop_tables,
    made,
    sequence,
)

revision = "0034"
down_revision = "0033"
oldest_code = "0023"


def upgrade() -> None:
    create_numbered_table(
        "ssh_keys",
        sa.Column("ssh_key_id", sa.String(25), nullable=False, unique=True),
        belongs_to("user_account_id", "users.account_id", length=12),
        sa.Column("name", byte_ordered(255), nullable=False),
        sa.Column("public_key", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.String(50), nullable=False),
        sa.Column("api_key_id", sa.String(25)),
        *made("created_at"),
        sequence(),
        sa.Column("deleted_at", TIME),
    )
    for column in ("name", "fingerprint"):
        create_unique_index(
            "ssh_keys",
            f"user_account_id, {column}",
            f"unique_ssh_key_{column}",
            "deleted_at IS NULL",
        )
    create_index("ssh_keys", "user_account_id, created_at, id")
    create_numbered_table(
        "ssh_host_keys",
        sa.Column("generation", sa.Integer, nullable=False, unique=True),
        sa.Column("encrypted", sa.Text, nullable=False),
        *made("created_at"),
    )


def downgrade() -> None:
    drop_tables("ssh_host_keys", "ssh_keys")
