"""The provider that the pool belongs to, as an entity with events."""

import time

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.event_schema import write_baseline

revision = "0004"
down_revision = "0003"
oldest_code = "0001"


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_table(
        "bindings",
        sa.Column("pool", sa.String(64), primary_key=True),
        sa.Column("provider", sa.String, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        schema=schema,
    )
    op.execute(
        f"INSERT INTO {schema}.bindings (pool, provider, sequence) "  # noqa: S608 - a constant
        f"SELECT 'pool', value, 1 FROM {schema}.properties WHERE name = 'provider'"
    )
    bindings = sa.table(
        "bindings",
        sa.column("pool", sa.String()),
        sa.column("provider", sa.String()),
        schema=schema,
    )
    write_baseline(op, bindings, subject="pool", order="pool", at_ms=int(time.time() * 1000))
    op.drop_table("properties", schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_table(
        "properties",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.String, nullable=False),
        schema=schema,
    )
    op.execute(
        f"INSERT INTO {schema}.properties (name, value) "  # noqa: S608 - a constant
        f"SELECT 'provider', provider FROM {schema}.bindings"
    )
    op.drop_table("bindings", schema=schema)
