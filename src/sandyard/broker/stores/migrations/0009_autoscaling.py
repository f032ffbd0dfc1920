"""What is known of the pool's size beside its rows."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
oldest_code = "0001"


def upgrade() -> None:
    op.create_table(
        "autoscalers",
        sa.Column("autoscaler", sa.String(64), primary_key=True),
        sa.Column("level", sa.String(20), nullable=False),
        sa.Column("asked", sa.String, nullable=False),
        sa.Column("asked_at", sa.BigInteger, nullable=False),
        sa.Column("window_at", sa.BigInteger, nullable=False),
        sa.Column("created", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("next_attempt_at", sa.BigInteger, nullable=False),
        sa.Column("is_stuck", sa.Boolean, nullable=False),
        sa.Column("sync_failures", sa.Integer, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        schema=op.get_context().version_table_schema,
    )


def downgrade() -> None:
    op.drop_table("autoscalers", schema=op.get_context().version_table_schema)
