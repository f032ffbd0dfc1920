"""Records of calls with an idempotency key."""

from sandyard.kit.sql.shared_tables import create_idempotency_table, drop_tables

revision = "0033"
down_revision = "0032"
oldest_code = "0023"


def upgrade() -> None:
    create_idempotency_table()


def downgrade() -> None:
    drop_tables("idempotency_records")
