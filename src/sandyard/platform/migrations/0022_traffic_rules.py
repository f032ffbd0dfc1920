"""Rules for what goes out of a sandbox and comes in; a template's user and variables, and what its
archives take."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.column_types import Json

revision = "0022"
down_revision = "0021"
oldest_code = "0002"

TIME = sa.DateTime(timezone=True).with_variant(sa.String(27), "sqlite")
_TEMPLATES: dict[str, Any] = {
    "default_user": sa.String(32),
    "build_variables": Json,
    "archive_bytes": sa.BigInteger(),
    "archived_by": sa.String(25),
    "storage_counted_until": TIME,
}


def upgrade() -> None:
    """What is there has none. Archives of before are counted from the next build or snapshot on."""
    schema = op.get_context().version_table_schema
    op.add_column("sandboxes", sa.Column("traffic_rules", Json), schema=schema)
    for name, kind in _TEMPLATES.items():
        op.add_column("templates", sa.Column(name, kind), schema=schema)
    op.create_index(
        "templates_storage_counted_until",
        "templates",
        ["storage_counted_until"],
        schema=schema,
        sqlite_where=sa.text("storage_counted_until IS NOT NULL"),
        postgresql_where=sa.text("storage_counted_until IS NOT NULL"),
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_index("templates_storage_counted_until", "templates", schema=schema)
    for name in reversed(_TEMPLATES):
        op.drop_column("templates", name, schema=schema)
    op.drop_column("sandboxes", "traffic_rules", schema=schema)
