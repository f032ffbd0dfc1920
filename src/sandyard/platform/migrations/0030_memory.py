"""Whether the processes of sandboxes are kept when they stop, and are in their snapshots."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import schema

revision = "0030"
down_revision = "0029"
oldest_code = "0023"
_COLUMNS = ("keeps_memory", "snapshot_has_memory")


def upgrade() -> None:
    for name in _COLUMNS:
        column = sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())
        op.add_column("sandboxes", column, schema=schema())


def downgrade() -> None:
    for name in _COLUMNS:
        op.drop_column("sandboxes", name, schema=schema())
