"""Previews have a schema of their own: what projects had of them goes, and triggers with it."""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import drop_tables, is_postgres, lock_tables, schema

revision = "0024"
down_revision = "0023"
oldest_code = "0023"

_COLUMNS = (
    *("sandbox_id", "preview_url", "sandbox_info", "preview_revision", "preview_attempt"),
    *("preview_attempt_until", "files_version"),
)


def upgrade() -> None:
    """On PostgreSQL, `project_files` stays for the release before, which deletes from it. A schema
    that this release created has none of it."""
    there = {each["name"] for each in sa.inspect(op.get_bind()).get_columns("projects", schema())}
    if not there.issuperset(("files_version",)):
        return
    if is_postgres():
        _drop_triggers()
    else:
        drop_tables("project_files")
    for name in there.intersection(_COLUMNS):
        op.drop_column("projects", name, schema=schema())


def downgrade() -> None:
    """Nothing to undo: the release before does without it."""


def _drop_triggers() -> None:
    lock_tables(op.get_bind(), f"{schema()}.projects")
    for function in ("count_change", "take_from_projects", "give_to_projects"):
        owner = schema() if function == "count_change" else "previews"
        op.execute(f"DROP FUNCTION IF EXISTS {owner}.{function} CASCADE")
    op.execute(f"DELETE FROM {schema()}.jobs WHERE holder = 'a newer release'")  # noqa: S608 - ours
