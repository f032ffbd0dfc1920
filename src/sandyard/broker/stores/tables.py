"""The pool's SQL tables, as the queries see them; the migrations make them."""

import sqlalchemy as sa

from sandyard.kit.circuits_sql import circuit_table
from sandyard.kit.events_sql import event_table
from sandyard.kit.jobs_sql import job_table

SCHEMA = "broker"
DELETED = "deleted"
"""The status of a tombstone. It stays in the row's place, so that the primary key itself keeps
a deleted sandbox from being inserted again."""

metadata = sa.MetaData(schema=SCHEMA)

sandboxes = sa.Table(
    "sandboxes",
    metadata,
    sa.Column("sandbox_id", sa.String(128), primary_key=True),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("external_id", sa.String, nullable=False),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("stale_reason", sa.String(20)),
    sa.Column("lab_duration_hours", sa.Float, nullable=False),
    sa.Column("allocated_to_track", sa.String(128)),
    sa.Column("idempotency_key", sa.String(128)),
    sa.Column("track_name", sa.String(128)),
    sa.Column("allocated_at", sa.BigInteger, nullable=False),
    sa.Column("lease_track", sa.String(128)),
    sa.Column("lease_key", sa.String(128)),
    sa.Column("lease_ends_at", sa.BigInteger),
    sa.Column("deletion_requested_at", sa.BigInteger),
    sa.Column("deletion_retry_count", sa.Integer, nullable=False),
    sa.Column("next_attempt_at", sa.BigInteger),
    sa.Column("last_synced", sa.BigInteger),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("deleted_at", sa.BigInteger),
    sa.Column("kept_until", sa.BigInteger),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)
"""The lease is `lease_track`, `lease_key` and `lease_ends_at`: there exactly while the row is
`allocated`, which the database itself checks. Likewise only a row in `pending_deletion` has a
`next_attempt_at`, and only a tombstone a `kept_until`. Each has an index of its own, and queries go
by these columns rather than by `status`: a planner that has seen no statistics takes any condition
on `status` for a selective one and reads every lease."""

status_counts = sa.Table(
    "tally",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("change", sa.BigInteger, nullable=False),
)
"""How the number of rows in each state changed, a line per transaction: their sum is the count.
Adding a line never waits for another transaction, as one counter for all would."""

properties = sa.Table(
    "properties",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.String, nullable=False),
)
"""What holds for the pool as a whole, such as whose sandboxes it has."""

jobs = job_table(metadata)
circuits = circuit_table(metadata)
events = event_table(metadata)
