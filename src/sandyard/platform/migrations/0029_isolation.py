"""The isolation that templates ask for, and that sandboxes have had."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import schema

revision = "0029"
down_revision = "0028"
oldest_code = "0023"


def upgrade() -> None:
    for table in ("templates", "sandboxes"):
        op.add_column(table, sa.Column("isolation", sa.String(20)), schema=schema())


def downgrade() -> None:
    for table in ("sandboxes", "templates"):
        op.drop_column(table, "isolation", schema=schema())
