"""What Previews know of a project's sandbox, beside what it replaces, and the project's files.

Since Previews have a schema of their own, which copies what is here when it is made, only 0.1.0
uses it. It stays for now: dropped here, it would be lost wherever this schema is upgraded before
that one. A later version, which only upgrades from one that has copied it, may drop it.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"

TIME = sa.DateTime(timezone=True).with_variant(sa.String(27), "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")
ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    for column in (
        sa.Column("sandbox_id", sa.Text),
        sa.Column("preview_url", sa.Text),
        sa.Column("sandbox_info", JSON),
        sa.Column("preview_revision", sa.Integer, nullable=False, server_default="0"),
        sa.Column("preview_attempt", sa.String(64)),
        sa.Column("preview_attempt_until", TIME),
        sa.Column("files_version", sa.Integer, nullable=False, server_default="0"),
    ):
        op.add_column("projects", column, schema=schema)
    path = sa.String(512).with_variant(sa.String(512, collation="C"), "postgresql")
    op.create_table(
        "project_files",
        sa.Column("id", ID, primary_key=True),
        sa.Column(
            "project_id",
            sa.String(25),
            sa.ForeignKey(f"{schema}.projects.project_id"),
            nullable=False,
        ),
        sa.Column("path", path, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("is_deleted", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        schema=schema,
    )
    op.create_index(
        "project_files_path", "project_files", ["project_id", "path"], unique=True, schema=schema
    )
    op.create_index(
        "project_files_version", "project_files", ["project_id", "version"], schema=schema
    )


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    inspector = sa.inspect(op.get_bind())
    if "project_files" in inspector.get_view_names(schema=schema):  # as Previews left it
        op.execute(f"DROP VIEW {schema}.project_files")
    else:
        op.drop_table("project_files", schema=schema)
    there = {c["name"] for c in inspector.get_columns("projects", schema=schema)}
    for column in (
        "files_version",
        "preview_attempt_until",
        "preview_attempt",
        "preview_revision",
        "sandbox_info",
        "preview_url",
        "sandbox_id",
    ):
        if column in there:
            op.drop_column("projects", column, schema=schema)
