"""What a sandbox may reach, and what the sandboxes of a template may."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
oldest_code = "0002"


def upgrade() -> None:
    """What is there reaches nothing, as before."""
    schema = op.get_context().version_table_schema
    network = sa.Column("network", sa.String(10), nullable=False, server_default="none")
    op.add_column("sandboxes", network, schema=schema)
    op.add_column("templates", sa.Column("network", sa.String(10)), schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_column("templates", "network", schema=schema)
    op.drop_column("sandboxes", "network", schema=schema)
