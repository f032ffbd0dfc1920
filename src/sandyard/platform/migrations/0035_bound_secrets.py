"""Secrets that are bound to hosts, and how much each run of a sandbox has used them."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import JSON, TIME, create_table, drop_tables, numbers, schema

revision = "0035"
down_revision = "0034"
oldest_code = "0023"


def upgrade() -> None:
    for column in (sa.Column("binding", JSON), sa.Column("budget_reached_at", TIME)):
        op.add_column("variables", column, schema=schema())
    variable = sa.ForeignKey(f"{schema()}.variables.variable_id", ondelete="CASCADE")
    create_table(
        "secret_uses",
        sa.Column("variable_id", sa.String(25), variable, primary_key=True),
        sa.Column("run", sa.String(64), primary_key=True),
        *numbers("requests", "bytes", kind=sa.BigInteger, default="0"),
    )


def downgrade() -> None:
    drop_tables("secret_uses")
    for name in ("budget_reached_at", "binding"):
        op.drop_column("variables", name, schema=schema())
