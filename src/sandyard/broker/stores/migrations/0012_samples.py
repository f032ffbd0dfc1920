"""The pool's counts of every minute of the last day."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
oldest_code = "0001"


def upgrade() -> None:
    op.create_table(
        "pool_samples",
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("counts", sa.Text, nullable=False),
        sa.Column("waiting", sa.BigInteger, nullable=False),
        sa.Column("leases", sa.BigInteger, nullable=False),
        schema=op.get_context().version_table_schema,
    )


def downgrade() -> None:
    op.drop_table("pool_samples", schema=op.get_context().version_table_schema)
