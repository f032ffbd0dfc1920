"""Files belong to previews from the statement on that writes them."""

from alembic import op

from sandyard.kit.sql.shared_tables import is_postgres, schema

revision = "0005"
down_revision = "0004"
oldest_code = "0004"


def upgrade() -> None:
    """On SQLite, and in a schema that this release created, it is so already."""
    if is_postgres():
        key = "project_files_project_id_fkey"
        op.execute(f"ALTER TABLE {schema()}.project_files ALTER CONSTRAINT {key} NOT DEFERRABLE")


def downgrade() -> None:
    """Nothing to undo: both schemas fit."""
