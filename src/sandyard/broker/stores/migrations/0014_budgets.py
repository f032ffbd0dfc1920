"""Clients have budgets, and leases count their replacements."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import is_postgres, lock_tables, schema

revision = "0014"
down_revision = "0013"
oldest_code = "0013"

_TABLES = ("sandboxes", "client_counts", "client_slots")


def upgrade() -> None:
    """The release before counts neither: what it does meanwhile is not limited."""
    if is_postgres():
        lock_tables(op.get_bind(), *(f"{schema()}.{each}" for each in _TABLES))
    op.add_column("sandboxes", _count("replacements"), schema=schema())
    op.add_column("client_counts", _count("hour"), schema=schema())
    op.add_column("client_counts", _count("taken"), schema=schema())
    op.add_column("client_slots", sa.Column("paid_hour", sa.BigInteger), schema=schema())


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def downgrade() -> None:
    op.drop_column("client_slots", "paid_hour", schema=schema())
    op.drop_column("client_counts", "taken", schema=schema())
    op.drop_column("client_counts", "hour", schema=schema())
    op.drop_column("sandboxes", "replacements", schema=schema())
