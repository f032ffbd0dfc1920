"""Templates that keep files, and sandboxes that begin with them."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.column_types import Json

revision = "0020"
down_revision = "0016"
oldest_code = "0002"

_TEMPLATES = ("made_from", "start_command", "ready_command", "working_folder")


def upgrade() -> None:
    """What is there has none."""
    schema = op.get_context().version_table_schema
    op.add_column("templates", sa.Column("archives", Json), schema=schema)
    for name in _TEMPLATES:
        kind = sa.String(25) if name == "made_from" else sa.Text()
        op.add_column("templates", sa.Column(name, kind), schema=schema)
    op.add_column("sandboxes", sa.Column("archive_id", sa.String(36)), schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_column("sandboxes", "archive_id", schema=schema)
    for name in reversed(("archives", *_TEMPLATES)):
        op.drop_column("templates", name, schema=schema)
