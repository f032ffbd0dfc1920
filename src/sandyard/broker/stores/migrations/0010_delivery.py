"""Webhooks, how far each sink has come, and what was tried."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
oldest_code = "0001"


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_table(
        "webhooks",
        sa.Column("webhook_id", sa.String(64), primary_key=True),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("kinds", sa.Text, nullable=False),
        sa.Column("note", sa.Text),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", sa.Text),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("old_secret", sa.Text),
        sa.Column("old_secret_until_ms", sa.BigInteger),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        schema=schema,
    )
    op.create_table(
        "sink_streams",
        sa.Column("sink", sa.String(64), primary_key=True),
        sa.Column("part", sa.String(32), primary_key=True),
        sa.Column("since_ms", sa.BigInteger, nullable=False),
        sa.Column("position", sa.String(64)),
        sa.Column("failing_since_ms", sa.BigInteger),
        sa.Column("last_error", sa.Text),
        schema=schema,
    )
    op.create_table(
        "webhook_attempts",
        sa.Column("attempt_id", sa.String(64), primary_key=True),
        sa.Column("webhook_id", sa.String(64), nullable=False),
        sa.Column("event_id", sa.String(26), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("duration_ms", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("error", sa.Text),
        schema=schema,
    )
    columns = ["webhook_id", "at_ms", "attempt_id"]
    op.create_index("webhook_attempts_of", "webhook_attempts", columns, schema=schema)
    op.create_index("webhook_attempts_by_time", "webhook_attempts", ["at_ms"], schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for table in ("webhook_attempts", "sink_streams", "webhooks"):
        op.drop_table(table, schema=schema)
