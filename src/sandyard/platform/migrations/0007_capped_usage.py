"""The deadline of a usage becomes state: each that has one gets a new baseline with it."""

import time

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.column_types import Money, UtcTime
from sandyard.kit.sql.event_schema import write_baseline

revision = "0007"
down_revision = "0006"
oldest_code = "0002"


def upgrade() -> None:
    usage = sa.table(
        "sandbox_usage",
        sa.column("usage_id", sa.String),
        sa.column("sandbox_id", sa.String),
        sa.column("user_account_id", sa.String),
        sa.column("project_id", sa.String),
        sa.column("service_type", sa.String),
        sa.column("start_time", UtcTime),
        sa.column("end_time", UtcTime),
        sa.column("hourly_rate", Money),
        sa.column("cpu", sa.Double),
        sa.column("memory_gb", sa.Double),
        sa.column("storage_gb", sa.Double),
        sa.column("created_at", UtcTime),
        sa.column("end_reason", sa.String),
        sa.column("running_seconds", sa.Integer),
        sa.column("cpu_hours", sa.Double),
        sa.column("memory_hours", sa.Double),
        sa.column("storage_hours", sa.Double),
        sa.column("cost", Money),
        sa.column("is_billed", sa.Boolean),
        sa.column("deadline_at", UtcTime),
        sa.column("sequence", sa.BigInteger),
        schema=op.get_context().version_table_schema,
    )
    has_deadline = usage.c.deadline_at.is_not(None)
    op.execute(usage.update().where(has_deadline).values(sequence=usage.c.sequence + 1))
    write_baseline(
        op,
        usage,
        subject="usage_id",
        order="usage_id",
        account="user_account_id",
        at_ms=int(time.time() * 1000),
        where=has_deadline,
    )


def downgrade() -> None:
    """Nothing to undo: the schema before reads the same columns."""
