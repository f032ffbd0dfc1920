"""Readings have the time when they arrived."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import is_postgres, lock_tables, schema

revision = "0003"
down_revision = "0002"
oldest_code = "0002"


def upgrade() -> None:
    """Unknown of readings that the release before has stored, or stores meanwhile."""
    if is_postgres():
        lock_tables(op.get_bind(), f"{schema()}.device_readings")
    op.add_column("device_readings", sa.Column("received_at", sa.String(20)), schema=schema())


def downgrade() -> None:
    """Nothing to undo: the release before does without it."""
