"""Failed logins, counted where replicas share them, and the networks that accounts log in from."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.column_types import UtcTime

revision = "0005"
down_revision = "0004"
oldest_code = "0002"


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_table(
        "login_failures",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("window_ends_at", UtcTime, nullable=False),
        schema=schema,
    )
    op.create_index(
        "login_failures_window_ends_at", "login_failures", ["window_ends_at"], schema=schema
    )
    op.create_table(
        "login_networks",
        sa.Column("account_id", sa.String(12), primary_key=True),
        sa.Column("network", sa.String(64), primary_key=True),
        sa.Column("last_login_at", UtcTime, nullable=False),
        schema=schema,
    )
    op.create_index(
        "login_networks_last_login_at", "login_networks", ["last_login_at"], schema=schema
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_table("login_networks", schema=schema)
    op.drop_table("login_failures", schema=schema)
