"""Programs of sandboxes beside their machines, and ports that are public one by one."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import JSON, schema

revision = "0028"
down_revision = "0027"
oldest_code = "0023"


def upgrade() -> None:
    op.add_column("sandboxes", sa.Column("program_policy", sa.String(20)), schema=schema())
    for name in ("program", "public_ports"):
        op.add_column("sandboxes", sa.Column(name, JSON), schema=schema())


def downgrade() -> None:
    for name in ("public_ports", "program", "program_policy"):
        op.drop_column("sandboxes", name, schema=schema())
