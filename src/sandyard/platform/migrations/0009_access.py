"""Who may open a sandbox's ports, and whether a request starts it."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
oldest_code = "0002"

COLUMNS = ("is_public", "wake_on_request")


def upgrade() -> None:
    """What is there stays private, and asleep."""
    schema = op.get_context().version_table_schema
    for name in COLUMNS:
        column = sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())
        op.add_column("sandboxes", column, schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for name in reversed(COLUMNS):
        op.drop_column("sandboxes", name, schema=schema)
