"""The end of a lease, which its track may move, and the keys of the calls that did."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
oldest_code = "0001"


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.add_column("sandboxes", sa.Column("ends_at", sa.BigInteger), schema=schema)
    op.add_column("sandboxes", sa.Column("extension_keys", sa.String), schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for column in ("extension_keys", "ends_at"):
        op.drop_column("sandboxes", column, schema=schema)
