"""Rates with all their decimal places, only known roles, states and types, and accounts by the
token that verifies their address."""

from functools import partial

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.shared_tables import (
    create_index,
    edit_definition,
    is_postgres,
    lock_tables,
    schema,
)

revision = "0025"
down_revision = "0024"
oldest_code = "0023"

_PENDING = "verification_token IS NOT NULL"
_CHECKS = {
    "users": ("known_roles", "role IN ('user', 'admin')"),
    "projects": ("known_project_states", "status IN ('active', 'archived')"),
    "notifications": ("known_types", "type IN ('info', 'warning', 'error', 'success')"),
    "sandboxes": (
        "known_sandbox_states",
        "status IN ('created', 'starting', 'running', 'stopped', 'timeout', 'recycled')",
    ),
}


def upgrade() -> None:
    op.add_column("sandbox_usage", sa.Column("exact_rate", sa.String(64)), schema=schema())
    create_index("users", "verification_token", where=_PENDING, unique=True)
    for table, (name, condition) in _CHECKS.items():
        if is_postgres():
            lock_tables(op.get_bind(), f"{schema()}.{table}")
            op.create_check_constraint(name, table, sa.text(condition), schema=schema())
        else:
            edit_definition(table, partial(_with_clause, clause=_clause(name, condition)))


def downgrade() -> None:
    for table, (name, condition) in _CHECKS.items():
        if is_postgres():
            op.drop_constraint(name, table, type_="check", schema=schema())
        else:
            edit_definition(table, partial(_without_clause, clause=_clause(name, condition)))
    op.drop_index("users_verification_token", "users", schema=schema())
    op.drop_column("sandbox_usage", "exact_rate", schema=schema())


def _clause(name: str, condition: str) -> str:
    return f", CONSTRAINT {name} CHECK ({condition})"


def _with_clause(sql: str, clause: str) -> str:
    return f"{sql[: sql.rindex(')')]}{clause})"


def _without_clause(sql: str, clause: str) -> str:
    return sql.replace(clause, "")
