"""Sandboxes that are held or quarantined for a reason, what replaced one, and failed probes."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
oldest_code = "0001"

_COLUMNS = {
    "status_reason": sa.String,
    "held_until": sa.BigInteger,
    "hold_reminded_at": sa.BigInteger,
    "replaced_by": sa.String,
}


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    for name, kind in _COLUMNS.items():
        op.add_column("sandboxes", sa.Column(name, kind), schema=schema)
    failures = sa.Column("probe_failures", sa.Integer, nullable=False, server_default="0")
    op.add_column("sandboxes", failures, schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for name in ("probe_failures", *reversed(_COLUMNS)):
        op.drop_column("sandboxes", name, schema=schema)
