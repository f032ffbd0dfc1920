"""The queue for sandboxes, and for whom one is kept."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
oldest_code = "0001"


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.add_column("sandboxes", sa.Column("reserved_for", sa.String(64)), schema=schema)
    # Ids are compared by bytes, whatever the database's locale: they sort by time.
    ticket_id = sa.String(64).with_variant(sa.String(64, collation="C"), "postgresql")
    op.create_table(
        "tickets",
        sa.Column("ticket_id", ticket_id, primary_key=True),
        sa.Column("track_id", sa.String(128), nullable=False),
        sa.Column("key", sa.String(128), nullable=False),
        sa.Column("urgency", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("name_prefix", sa.String(128), nullable=False),
        sa.Column("sandbox_id", sa.String(128)),
        sa.Column("asked_at", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        schema=schema,
    )
    op.create_index("tickets_of", "tickets", ["track_id", "key"], unique=True, schema=schema)
    op.create_index("tickets_by_place", "tickets", ["urgency", "ticket_id"], schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_table("tickets", schema=schema)
    op.drop_column("sandboxes", "reserved_for", schema=schema)
