"""When an idle sandbox is stopped, and how many machines of a template are kept warm."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
oldest_code = "0002"


def upgrade() -> None:
    """What is there is never stopped for being idle, and of no template is anything kept warm."""
    schema = op.get_context().version_table_schema
    op.add_column("sandboxes", sa.Column("idle_stop_minutes", sa.Integer), schema=schema)
    op.add_column("sandboxes", sa.Column("last_used_at", sa.DateTime(timezone=True)), schema=schema)
    column = sa.Column("warm_machines", sa.Integer, nullable=False, server_default="0")
    op.add_column("templates", column, schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_column("templates", "warm_machines", schema=schema)
    op.drop_column("sandboxes", "last_used_at", schema=schema)
    op.drop_column("sandboxes", "idle_stop_minutes", schema=schema)
