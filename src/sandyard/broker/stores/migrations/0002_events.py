"""The pool's events, the sequence that changes are compared by, and an index for tracks."""

import time
from typing import Any

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.event_schema import add_sequence, create_event_table, write_baseline

revision = "0002"
down_revision = "0001"
oldest_code = "0001"

_SANDBOX: dict[str, Any] = {
    "sandbox_id": sa.String(),
    "name": sa.String(),
    "external_id": sa.String(),
    "status": sa.String(),
    "lab_duration_hours": sa.Float(),
    "created_at": sa.BigInteger(),
    "updated_at": sa.BigInteger(),
    "allocated_at": sa.BigInteger(),
    "deletion_retry_count": sa.Integer(),
    "allocated_to_track": sa.String(),
    "idempotency_key": sa.String(),
    "track_name": sa.String(),
    "deletion_requested_at": sa.BigInteger(),
    "next_attempt_at": sa.BigInteger(),
    "stale_reason": sa.String(),
}
_TOMBSTONE: dict[str, Any] = {
    "sandbox_id": sa.String(),
    "external_id": sa.String(),
    "allocated_to_track": sa.String(),
    "deletion_requested_at": sa.BigInteger(),
    "deleted_at": sa.BigInteger(),
}


def upgrade() -> None:
    schema = op.get_context().version_table_schema or ""
    create_event_table(op, schema=schema)
    add_sequence(op, "sandboxes", schema=schema)
    at_ms = int(time.time() * 1000)
    is_tombstone = sa.column("status") == "deleted"
    for state, where in ((_SANDBOX, sa.not_(is_tombstone)), (_TOMBSTONE, is_tombstone)):
        columns: list[Any] = [sa.column(name, kind) for name, kind in state.items()]
        table = sa.table("sandboxes", *columns, schema=schema)
        write_baseline(
            op, table, subject="sandbox_id", order="sandbox_id", at_ms=at_ms, where=where
        )
    of_tracks = sa.text("allocated_to_track IS NOT NULL")
    op.create_index(
        "sandboxes_by_track",
        "sandboxes",
        ["allocated_to_track", "sandbox_id"],
        schema=schema,
        sqlite_where=of_tracks,
        postgresql_where=of_tracks,
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_index("sandboxes_by_track", "sandboxes", schema=schema)
    op.drop_column("sandboxes", "sequence", schema=schema)
    op.drop_table("events", schema=schema)
