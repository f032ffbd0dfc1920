"""Usage and bills in milliseconds (those of before stay in whole seconds), charges and credits,
programs of sandboxes beside their machines, their isolation, and memory that is kept."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import JSON, edit_definition, is_postgres, schema

revision = "0030"
down_revision = "0025"
oldest_code = "0023"

_ANY, _REQUIRED = "usage_id VARCHAR(25),", "usage_id VARCHAR(25) NOT NULL,"


def _added() -> list[tuple[str, sa.Column[Any]]]:
    return [
        ("sandbox_usage", sa.Column("milliseconds", sa.BigInteger)),
        ("billing_records", sa.Column("usage_milliseconds", sa.BigInteger)),
        ("sandboxes", sa.Column("program_policy", sa.String(20))),
        ("sandboxes", sa.Column("program", JSON)),
        ("sandboxes", sa.Column("public_ports", JSON)),
        ("templates", sa.Column("isolation", sa.String(20))),
        ("sandboxes", sa.Column("isolation", sa.String(20))),
        ("sandboxes", _flag("keeps_memory")),
        ("sandboxes", _flag("snapshot_has_memory")),
    ]


def _flag(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.false())


def upgrade() -> None:
    for table, column in _added():
        op.add_column(table, column, schema=schema())
    _set_nullable(nullable=True)


def downgrade() -> None:
    op.execute(f"DELETE FROM {schema()}.billing_records WHERE usage_id IS NULL")  # noqa: S608 - ours
    _set_nullable(nullable=False)
    for table, column in reversed(_added()):
        op.drop_column(table, column.name, schema=schema())


def _set_nullable(*, nullable: bool) -> None:
    if is_postgres():
        op.alter_column("billing_records", "usage_id", nullable=nullable, schema=schema())
    else:
        old, new = (_REQUIRED, _ANY) if nullable else (_ANY, _REQUIRED)
        edit_definition("billing_records", lambda sql: sql.replace(old, new))
