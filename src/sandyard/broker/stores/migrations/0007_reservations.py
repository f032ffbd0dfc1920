"""Reservations, and which sandboxes are kept for one."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
oldest_code = "0001"


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.add_column("sandboxes", sa.Column("reservation_id", sa.String(64)), schema=schema)
    op.add_column("tickets", sa.Column("client", sa.String(128)), schema=schema)
    kept = sa.text("reserved_for IS NOT NULL")
    op.create_index(
        "sandboxes_reserved",
        "sandboxes",
        ["reserved_for", "name", "sandbox_id"],
        schema=schema,
        sqlite_where=kept,
        postgresql_where=kept,
    )
    op.create_table(
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
        schema=schema,
    )
    op.create_index(
        "reservations_by_end", "reservations", ["ends_at", "reservation_id"], schema=schema
    )
    is_open = sa.text("ended_at IS NULL")
    op.create_index(
        "reservations_open",
        "reservations",
        ["ended_at"],
        schema=schema,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.create_table(
        "calendars",
        sa.Column("calendar", sa.String(64), primary_key=True),
        sa.Column("last_reservation_id", sa.String(64), nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        schema=schema,
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_table("calendars", schema=schema)
    op.drop_table("reservations", schema=schema)
    op.drop_index("sandboxes_reserved", "sandboxes", schema=schema)
    op.drop_column("tickets", "client", schema=schema)
    op.drop_column("sandboxes", "reservation_id", schema=schema)
