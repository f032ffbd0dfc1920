"""Clients, when their tokens were last used, and how many leases each has."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
oldest_code = "0001"


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_table(
        "clients",
        sa.Column("client_id", sa.String(128), primary_key=True),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("track_prefix", sa.String(128), nullable=False),
        sa.Column("rate", sa.String(64)),
        sa.Column("max_leases", sa.BigInteger),
        sa.Column("tokens", sa.Text, nullable=False),
        sa.Column("hashes", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        schema=schema,
    )
    op.create_table(
        "client_token_uses",
        sa.Column("token_id", sa.String(32), primary_key=True),
        sa.Column("used_at", sa.BigInteger, nullable=False),
        schema=schema,
    )
    op.create_table(
        "client_counts",
        sa.Column("client", sa.String(64), primary_key=True),
        sa.Column("leases", sa.BigInteger, nullable=False),
        schema=schema,
    )
    op.create_table(
        "client_slots",
        sa.Column("client", sa.String(64), primary_key=True),
        sa.Column("track_id", sa.String(128), primary_key=True),
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("taken_at_ms", sa.BigInteger, nullable=False),
        schema=schema,
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for table in ("client_slots", "client_counts", "client_token_uses", "clients"):
        op.drop_table(table, schema=schema)
