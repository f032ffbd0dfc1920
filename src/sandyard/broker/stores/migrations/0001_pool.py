"""The pool, its tally and the job leases."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    # Prefixes are ranges of names, which requires byte order, whatever the database's locale.
    name = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    op.create_table(
        "sandboxes",
        sa.Column("sandbox_id", sa.String(128), primary_key=True),
        sa.Column("name", name, nullable=False),
        sa.Column("external_id", sa.String, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("stale_reason", sa.String(20)),
        sa.Column("lab_duration_hours", sa.Float, nullable=False),
        sa.Column("allocated_to_track", sa.String(128)),
        sa.Column("idempotency_key", sa.String(128)),
        sa.Column("track_name", sa.String(128)),
        sa.Column("allocated_at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("lease_track", sa.String(128)),
        sa.Column("lease_key", sa.String(128)),
        sa.Column("lease_ends_at", sa.BigInteger),
        sa.Column("deletion_requested_at", sa.BigInteger),
        sa.Column("deletion_retry_count", sa.Integer, nullable=False, server_default="0"),
        sa.Column("next_attempt_at", sa.BigInteger),
        sa.Column("last_synced", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("deleted_at", sa.BigInteger),
        sa.Column("kept_until", sa.BigInteger),
        sa.CheckConstraint("(status = 'allocated') = (lease_track IS NOT NULL)", "lease_track"),
        sa.CheckConstraint("(status = 'allocated') = (lease_key IS NOT NULL)", "lease_key"),
        sa.CheckConstraint("(status = 'allocated') = (lease_ends_at IS NOT NULL)", "lease_ends"),
        sa.CheckConstraint("(status = 'pending_deletion') = (next_attempt_at IS NOT NULL)", "next"),
        sa.CheckConstraint("(status = 'deleted') = (kept_until IS NOT NULL)", "kept"),
        schema=schema,
    )
    for index, columns, unique in (
        ("sandboxes_lease", ["lease_track", "lease_key"], True),
        ("sandboxes_ending", ["lease_ends_at", "sandbox_id"], False),
        ("sandboxes_deletable", ["next_attempt_at", "sandbox_id"], False),
        ("sandboxes_buried", ["kept_until", "sandbox_id"], False),
    ):
        there = sa.text(f"{columns[0]} IS NOT NULL")  # a partial index of the few relevant rows
        op.create_index(
            index,
            "sandboxes",
            columns,
            unique=unique,
            schema=schema,
            sqlite_where=there,
            postgresql_where=there,
        )
    op.create_index(
        "sandboxes_by_status", "sandboxes", ["status", "name", "sandbox_id"], schema=schema
    )
    op.create_table(
        "tally",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("change", sa.BigInteger, nullable=False),
        schema=schema,
    )
    op.create_table(
        "jobs",
        sa.Column("job", sa.String(64), primary_key=True),
        sa.Column("holder", sa.String(64)),
        sa.Column("held_until", sa.Double),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        schema=schema,
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for table in ("jobs", "tally", "sandboxes"):
        op.drop_table(table, schema=schema)
