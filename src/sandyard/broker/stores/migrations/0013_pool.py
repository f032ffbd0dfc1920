"""The pool, its queue, reservations, clients, deliveries and history, events and the job leases."""

import sqlalchemy as sa

from sandyard.kit.sql.shared_tables import (
    BIG_ID,
    byte_ordered,
    create_event_table,
    create_index,
    create_job_table,
    create_table,
    drop_tables,
    sequence,
)

revision = "0013"
down_revision = None

_TABLES = (
    *("sandboxes", "tally", "jobs", "events", "bindings", "circuits", "tickets", "reservations"),
    *("calendars", "autoscalers", "webhooks", "sink_streams", "webhook_attempts", "clients"),
    *("client_token_uses", "client_counts", "client_slots", "pool_samples"),
)


def upgrade() -> None:
    _create_sandboxes()
    _create_provider()
    _create_queue()
    _create_reservations()
    _create_delivery()
    _create_clients()
    create_job_table()
    create_event_table()


def downgrade() -> None:
    drop_tables(*_TABLES)


def _create_sandboxes() -> None:
    create_table(
        "sandboxes",
        sa.Column("sandbox_id", sa.String(128), primary_key=True),
        sa.Column("name", byte_ordered(), nullable=False),
        sa.Column("external_id", sa.String, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("status_reason", sa.String),
        sa.Column("stale_reason", sa.String(20)),
        sa.Column("lab_duration_hours", sa.Float, nullable=False),
        sa.Column("allocated_to_track", sa.String(128)),
        sa.Column("idempotency_key", sa.String(128)),
        sa.Column("track_name", sa.String(128)),
        sa.Column("allocated_at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("ends_at", sa.BigInteger),
        sa.Column("extension_keys", sa.String),
        sa.Column("lease_track", sa.String(128)),
        sa.Column("lease_key", sa.String(128)),
        sa.Column("lease_ends_at", sa.BigInteger),
        sa.Column("reserved_for", sa.String(64)),
        sa.Column("reservation_id", sa.String(64)),
        sa.Column("held_until", sa.BigInteger),
        sa.Column("hold_reminded_at", sa.BigInteger),
        sa.Column("replaced_by", sa.String),
        sa.Column("probe_failures", sa.Integer, nullable=False, server_default="0"),
        sa.Column("probed_at", sa.BigInteger),
        sa.Column("deletion_requested_at", sa.BigInteger),
        sa.Column("deletion_retry_count", sa.Integer, nullable=False, server_default="0"),
        sa.Column("next_attempt_at", sa.BigInteger),
        sa.Column("last_synced", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("deleted_at", sa.BigInteger),
        sa.Column("kept_until", sa.BigInteger),
        sequence(),
        sa.CheckConstraint("(status = 'allocated') = (lease_track IS NOT NULL)", "lease_track"),
        sa.CheckConstraint("(status = 'allocated') = (lease_key IS NOT NULL)", "lease_key"),
        sa.CheckConstraint("(status = 'allocated') = (lease_ends_at IS NOT NULL)", "lease_ends"),
        sa.CheckConstraint("(status = 'pending_deletion') = (next_attempt_at IS NOT NULL)", "next"),
        sa.CheckConstraint("(status = 'deleted') = (kept_until IS NOT NULL)", "kept"),
    )
    for name, columns, unique in (
        ("sandboxes_lease", "lease_track, lease_key", True),
        ("sandboxes_ending", "lease_ends_at, sandbox_id", False),
        ("sandboxes_deletable", "next_attempt_at, sandbox_id", False),
        ("sandboxes_buried", "kept_until, sandbox_id", False),
        ("sandboxes_by_track", "allocated_to_track, sandbox_id", False),
        ("sandboxes_reserved", "reserved_for, name, sandbox_id", False),
    ):
        there = f"{columns.split(',')[0]} IS NOT NULL"  # a partial index of the few relevant rows
        create_index("sandboxes", columns, name=name, where=there, unique=unique)
    create_index("sandboxes", "status, name, sandbox_id", name="sandboxes_by_status")
    create_table(
        "tally",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("change", sa.BigInteger, nullable=False),
    )
    create_table(
        "pool_samples",
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("counts", sa.Text, nullable=False),
        sa.Column("waiting", sa.BigInteger, nullable=False),
        sa.Column("leases", sa.BigInteger, nullable=False),
    )


def _create_provider() -> None:
    create_table(
        "bindings",
        sa.Column("pool", sa.String(64), primary_key=True),
        sa.Column("provider", sa.String, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
    )
    create_table(
        "circuits",
        sa.Column("circuit", sa.String(64), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("opened_at", sa.Double),
    )
    create_table(
        "autoscalers",
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


def _create_queue() -> None:
    create_table(
        "tickets",
        sa.Column("ticket_id", byte_ordered(64), primary_key=True),
        sa.Column("track_id", sa.String(128), nullable=False),
        sa.Column("key", sa.String(128), nullable=False),
        sa.Column("urgency", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("name_prefix", sa.String(128), nullable=False),
        sa.Column("sandbox_id", sa.String(128)),
        sa.Column("asked_at", sa.BigInteger, nullable=False),
        sa.Column("client", sa.String(128)),
        sa.Column("sequence", sa.BigInteger, nullable=False),
    )
    create_index("tickets", "track_id, key", name="tickets_of", unique=True)
    create_index("tickets", "urgency, ticket_id", name="tickets_by_place")


def _create_reservations() -> None:
    create_table(
        "reservations",
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
    create_index("reservations", "ends_at, reservation_id", name="reservations_by_end")
    create_index("reservations", "ended_at", name="reservations_open", where="ended_at IS NULL")
    create_table(
        "calendars",
        sa.Column("calendar", sa.String(64), primary_key=True),
        sa.Column("last_reservation_id", sa.String(64), nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
    )


def _create_delivery() -> None:
    create_table(
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
    )
    create_table(
        "sink_streams",
        sa.Column("sink", sa.String(64), primary_key=True),
        sa.Column("part", sa.String(32), primary_key=True),
        sa.Column("since_ms", sa.BigInteger, nullable=False),
        sa.Column("position", sa.String(64)),
        sa.Column("failing_since_ms", sa.BigInteger),
        sa.Column("last_error", sa.Text),
    )
    create_table(
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
    )
    columns = "webhook_id, at_ms, attempt_id"
    create_index("webhook_attempts", columns, name="webhook_attempts_of")
    create_index("webhook_attempts", "at_ms", name="webhook_attempts_by_time")


def _create_clients() -> None:
    create_table(
        "clients",
        sa.Column("client_id", sa.String(128), primary_key=True),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("track_prefix", sa.String(128), nullable=False),
        sa.Column("rate", sa.String(64)),
        sa.Column("max_leases", sa.BigInteger),
        sa.Column("tokens", sa.Text, nullable=False),
        sa.Column("hashes", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
    )
    create_table(
        "client_token_uses",
        sa.Column("token_id", sa.String(32), primary_key=True),
        sa.Column("used_at", sa.BigInteger, nullable=False),
    )
    create_table(
        "client_counts",
        sa.Column("client", sa.String(64), primary_key=True),
        sa.Column("leases", sa.BigInteger, nullable=False),
    )
    create_table(
        "client_slots",
        sa.Column("client", sa.String(64), primary_key=True),
        sa.Column("track_id", sa.String(128), primary_key=True),
        sa.Column("key", sa.String(128), primary_key=True),
        sa.Column("taken_at_ms", sa.BigInteger, nullable=False),
    )
