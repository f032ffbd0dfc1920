"""Which environment a sandbox has, and which part of which repository it is made from."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
oldest_code = "0002"

OF_TEMPLATES = {
    "environment": 64,
    "repository_ref": 200,
    "repository_folder": 500,
    "repository_secret": 128,
}
OF_SANDBOXES = {"environment": 64, "folder": 500}


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    for table, columns in (("templates", OF_TEMPLATES), ("sandboxes", OF_SANDBOXES)):
        for name, length in columns.items():
            op.add_column(table, sa.Column(name, sa.String(length)), schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for table, columns in (("sandboxes", OF_SANDBOXES), ("templates", OF_TEMPLATES)):
        for name in reversed(columns):
            op.drop_column(table, name, schema=schema)
