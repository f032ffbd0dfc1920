"""Usage and bills in milliseconds; those of before stay in whole seconds."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import schema

revision = "0026"
down_revision = "0025"
oldest_code = "0023"

_ADDED = {"sandbox_usage": "milliseconds", "billing_records": "usage_milliseconds"}


def upgrade() -> None:
    for table, column in _ADDED.items():
        op.add_column(table, sa.Column(column, sa.BigInteger), schema=schema())


def downgrade() -> None:
    for table, column in _ADDED.items():
        op.drop_column(table, column, schema=schema())
