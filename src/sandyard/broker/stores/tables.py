"""The pool's SQL tables, as the queries see them; the migrations make them."""

import sqlalchemy as sa

from sandyard.kit.sql.circuits import circuit_table
from sandyard.kit.sql.column_types import JsonText
from sandyard.kit.sql.events import event_table
from sandyard.kit.sql.job_leases import job_table

SCHEMA = "broker"
DELETED = "deleted"
"""The status of a tombstone. It replaces the row, so that the primary key prevents a deleted
sandbox from being inserted again."""

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
    sa.Column("ends_at", sa.BigInteger),
    sa.Column("extension_keys", sa.String),
    sa.Column("reserved_for", sa.String(64)),
    sa.Column("reservation_id", sa.String(64)),
    sa.Column("status_reason", sa.String),
    sa.Column("held_until", sa.BigInteger),
    sa.Column("hold_reminded_at", sa.BigInteger),
    sa.Column("replaced_by", sa.String(128)),
    sa.Column("probe_failures", sa.Integer, nullable=False),
    sa.Column("probed_at", sa.BigInteger),
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
"""The lease is `lease_track`, `lease_key` and `lease_ends_at`: set exactly while the row is
`allocated`, which the database checks. Likewise only a row in `pending_deletion` has a
`next_attempt_at`, and only a tombstone a `kept_until`. Each has its own index, and queries use
these columns rather than `status`: without statistics, a planner considers any condition on
`status` selective and reads every lease."""

status_counts = sa.Table(
    "tally",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("change", sa.BigInteger, nullable=False),
)
"""Changes of the number of rows per state, a line per transaction: their sum is the count. Adding a
line never waits for another transaction, as a single counter would."""

tickets = sa.Table(
    "tickets",
    metadata,
    sa.Column("ticket_id", sa.String(64), primary_key=True),
    sa.Column("track_id", sa.String(128), nullable=False),
    sa.Column("key", sa.String(128), nullable=False),
    sa.Column("urgency", sa.Integer, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("name_prefix", sa.String(128), nullable=False),
    sa.Column("sandbox_id", sa.String(128)),
    sa.Column("client", sa.String(128)),
    sa.Column("asked_at", sa.BigInteger, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)
"""The queue. A unique index over (track, key) allows one ticket for each."""

reservations = sa.Table(
    "reservations",
    metadata,
    sa.Column("reservation_id", sa.String(64), primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("starts_at", sa.BigInteger, nullable=False),
    sa.Column("ends_at", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("track_prefix", sa.String(128)),
    sa.Column("client", sa.String(128)),
    sa.Column("name_prefix", sa.String(128), nullable=False),
    sa.Column("note", sa.String, nullable=False),
    sa.Column("kept", sa.Integer, nullable=False),
    sa.Column("is_short", sa.Boolean, nullable=False),
    sa.Column("cancelled_at", sa.BigInteger),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)

calendars = sa.Table(
    "calendars",
    metadata,
    sa.Column("calendar", sa.String(64), primary_key=True),
    sa.Column("last_reservation_id", sa.String(64), nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)
"""One row, which every new reservation changes."""

autoscalers = sa.Table(
    "autoscalers",
    metadata,
    sa.Column("autoscaler", sa.String(64), primary_key=True),
    sa.Column("level", sa.String(20), nullable=False),
    sa.Column("asked", sa.String, nullable=False),
    sa.Column("asked_at", sa.BigInteger, nullable=False),
    sa.Column("window_at", sa.BigInteger, nullable=False),
    sa.Column("created", sa.Integer, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("next_attempt_at", sa.BigInteger, nullable=False),
    sa.Column("is_stuck", sa.Boolean, nullable=False),
    sa.Column("sync_failures", sa.Integer, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)
"""The autoscaler's state: one row."""

bindings = sa.Table(
    "bindings",
    metadata,
    sa.Column("pool", sa.String(64), primary_key=True),
    sa.Column("provider", sa.String, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)
"""The pool's provider: one row."""

webhooks = sa.Table(
    "webhooks",
    metadata,
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
)

streams = sa.Table(
    "sink_streams",
    metadata,
    sa.Column("sink", sa.String(64), primary_key=True),
    sa.Column("part", sa.String(32), primary_key=True),
    sa.Column("since_ms", sa.BigInteger, nullable=False),
    sa.Column("position", sa.String(64)),
    sa.Column("failing_since_ms", sa.BigInteger),
    sa.Column("last_error", sa.Text),
)
"""Each sink's position in the log of each part."""

attempts = sa.Table(
    "webhook_attempts",
    metadata,
    sa.Column("attempt_id", sa.String(64), primary_key=True),
    sa.Column("webhook_id", sa.String(64), nullable=False),
    sa.Column("event_id", sa.String(26), nullable=False),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("subject", sa.String(128), nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("duration_ms", sa.BigInteger, nullable=False),
    sa.Column("status", sa.Integer),
    sa.Column("error", sa.Text),
)

clients = sa.Table(
    "clients",
    metadata,
    sa.Column("client_id", sa.String(128), primary_key=True),
    sa.Column("scopes", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("track_prefix", sa.String(128), nullable=False),
    sa.Column("rate", sa.String(64)),
    sa.Column("max_leases", sa.BigInteger),
    sa.Column("tokens", JsonText, nullable=False),
    sa.Column("hashes", JsonText, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)

token_uses = sa.Table(
    "client_token_uses",
    metadata,
    sa.Column("token_id", sa.String(32), primary_key=True),
    sa.Column("used_at", sa.BigInteger, nullable=False),
)

client_counts = sa.Table(
    "client_counts",
    metadata,
    sa.Column("client", sa.String(64), primary_key=True),
    sa.Column("leases", sa.BigInteger, nullable=False),
)
"""How many slots each client has, changed in the transactions that take and free them."""

client_slots = sa.Table(
    "client_slots",
    metadata,
    sa.Column("client", sa.String(64), primary_key=True),
    sa.Column("track_id", sa.String(128), primary_key=True),
    sa.Column("key", sa.String(128), primary_key=True),
    sa.Column("taken_at_ms", sa.BigInteger, nullable=False),
)
"""Current and requested leases that count towards a client's limit."""

samples = sa.Table(
    "pool_samples",
    metadata,
    sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("counts", JsonText, nullable=False),
    sa.Column("waiting", sa.BigInteger, nullable=False),
    sa.Column("leases", sa.BigInteger, nullable=False),
)
"""The pool's samples of the last day, one per minute."""

jobs = job_table(metadata)
circuits = circuit_table(metadata)
events = event_table(metadata)
