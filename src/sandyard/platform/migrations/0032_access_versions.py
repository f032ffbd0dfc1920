"""Access tokens of sandboxes end when those are stopped."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import schema

revision = "0032"
down_revision = "0031"
oldest_code = "0023"


def upgrade() -> None:
    version = sa.Column("access_version", sa.Integer, nullable=False, server_default="0")
    op.add_column("sandboxes", version, schema=schema())


def downgrade() -> None:
    op.drop_column("sandboxes", "access_version", schema=schema())
