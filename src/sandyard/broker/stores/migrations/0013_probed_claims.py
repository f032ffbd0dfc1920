"""When a leased sandbox passed the probe at its claim."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
oldest_code = "0001"


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.add_column("sandboxes", sa.Column("probed_at", sa.BigInteger), schema=schema)


def downgrade() -> None:
    op.drop_column("sandboxes", "probed_at", schema=op.get_context().version_table_schema)
