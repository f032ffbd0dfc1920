"""Which provider the pool belongs to, and the state of circuit breakers."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
oldest_code = "0001"


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_table(
        "properties",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.String, nullable=False),
        schema=schema,
    )
    op.create_table(
        "circuits",
        sa.Column("circuit", sa.String(64), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("opened_at", sa.Double),
        schema=schema,
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for table in ("circuits", "properties"):
        op.drop_table(table, schema=schema)
