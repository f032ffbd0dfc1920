"""Variables and secrets of projects and sandboxes; scopes and an end for API keys."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.column_types import BIG_ID, UtcTime

revision = "0010"
down_revision = "0009"
oldest_code = "0002"

TIME = sa.DateTime(timezone=True).with_variant(sa.String(27), "sqlite")


def upgrade() -> None:
    """Keys that are there keep all that they may do, without an end."""
    schema = op.get_context().version_table_schema
    op.create_table(
        "variables",
        sa.Column("id", BIG_ID, primary_key=True),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("variable_id", sa.String(25), nullable=False, unique=True),
        sa.Column("owner_account_id", sa.String(12), nullable=False),
        sa.Column("holder_id", sa.String(25), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("is_secret", sa.Boolean, nullable=False),
        sa.Column("encrypted", sa.Text, nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("updated_at", UtcTime, nullable=False),
        sa.UniqueConstraint("holder_id", "name", name="one_variable_of_a_name"),
        schema=schema,
    )
    op.create_index("variables_of_account", "variables", ["owner_account_id"], schema=schema)
    scope = sa.Column("scope", sa.String(10), nullable=False, server_default="admin")
    op.add_column("api_keys", scope, schema=schema)
    op.add_column("api_keys", sa.Column("expires_at", TIME), schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_column("api_keys", "expires_at", schema=schema)
    op.drop_column("api_keys", "scope", schema=schema)
    op.drop_table("variables", schema=schema)
