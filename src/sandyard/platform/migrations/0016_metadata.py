"""What is noted with a sandbox, and whether it is recycled when its time is over."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.column_types import Json

revision = "0016"
down_revision = "0013"
oldest_code = "0002"


def upgrade() -> None:
    """What is there has nothing noted with it, and is kept."""
    schema = op.get_context().version_table_schema
    metadata = sa.Column("metadata", Json)
    recycled = sa.Column(
        "recycle_on_timeout", sa.Boolean, nullable=False, server_default=sa.false()
    )
    op.add_column("sandboxes", metadata, schema=schema)
    op.add_column("sandboxes", recycled, schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_column("sandboxes", "recycle_on_timeout", schema=schema)
    op.drop_column("sandboxes", "metadata", schema=schema)
