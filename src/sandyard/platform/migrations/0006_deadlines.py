"""When a run was last seen, and until when its usage counts at the latest."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
oldest_code = "0002"

TIME = sa.DateTime(timezone=True).with_variant(sa.String(27), "sqlite")


def upgrade() -> None:
    """A run that goes on has its sandbox's deadline; when it was last seen is not known yet."""
    schema = op.get_context().version_table_schema
    op.add_column("sandboxes", sa.Column("last_seen_at", TIME), schema=schema)
    op.add_column("sandbox_usage", sa.Column("deadline_at", TIME), schema=schema)
    usage = _table("sandbox_usage", "sandbox_id", "end_time", "deadline_at", schema=schema)
    sandboxes = _table("sandboxes", "sandbox_id", "timeout_at", schema=schema)
    deadline = (
        sa.select(sandboxes.c.timeout_at)
        .where(sandboxes.c.sandbox_id == usage.c.sandbox_id)
        .scalar_subquery()
    )
    op.execute(usage.update().where(usage.c.end_time.is_(None)).values(deadline_at=deadline))


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_column("sandbox_usage", "deadline_at", schema=schema)
    op.drop_column("sandboxes", "last_seen_at", schema=schema)


def _table(name: str, *columns: str, schema: str | None) -> sa.TableClause:
    return sa.table(name, *(sa.column(each) for each in columns), schema=schema)
