"""Previews with their files and the job leases, and what the Platform's schema held of them.

Version 0.1.0 kept it in the Platform's tables. It is copied if it is there, whichever schema is
upgraded first, and nothing is taken away there.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from sandyard.kit.sql.schema_locks import lock_tables

revision = "0001"
down_revision = None

TIME = sa.DateTime(timezone=True).with_variant(sa.String(27), "sqlite")
JSON = sa.JSON().with_variant(JSONB(), "postgresql")

OLD_COLUMNS = ("sandbox_id", "preview_url")
PREVIEWS = (
    "project_id, account_id, created_at, sandbox_id, preview_url, sandbox_info, attempt, "
    "attempt_until, running_until, files_version, sequence"
)
FILES = "project_id, path, content, size, is_deleted, version, updated_at"
ROWS_AT_ONCE = 100

# A sandbox that is only in the old columns is assumed to run for 30 minutes from the project's
# creation.
RUNNING_UNTIL = {
    "postgresql": """GREATEST(
        (sandbox_info->>'end_time')::timestamptz,
        preview_attempt_until,
        CASE WHEN sandbox_info IS NULL AND {has_old}
        THEN created_at + interval '30 minutes' END)""",
    "sqlite": """NULLIF(MAX(
        COALESCE(substr(json_extract(sandbox_info, '$.end_time'), 1, 23) || '000Z', ''),
        COALESCE(preview_attempt_until, ''),
        CASE WHEN sandbox_info IS NULL AND {has_old}
        THEN strftime('%Y-%m-%dT%H:%M:%f000Z', created_at, '+30 minutes') ELSE '' END), '')""",
}


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    op.create_table(
        "previews",
        sa.Column("project_id", sa.String(25), primary_key=True),
        sa.Column("account_id", sa.String(12), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("sandbox_id", sa.Text),
        sa.Column("preview_url", sa.Text),
        sa.Column("sandbox_info", JSON),
        sa.Column("attempt", sa.String(64)),
        sa.Column("attempt_until", TIME),
        sa.Column("running_until", TIME),
        sa.Column("files_version", sa.Integer, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        schema=schema,
    )
    op.create_index(
        "previews_of_account", "previews", ["account_id", "running_until"], schema=schema
    )
    op.create_index("previews_running", "previews", ["running_until"], schema=schema)
    op.create_index("previews_attempt", "previews", ["attempt"], schema=schema)
    path = sa.String(512).with_variant(sa.String(512, collation="C"), "postgresql")
    op.create_table(
        "project_files",
        sa.Column(
            "project_id",
            sa.String(25),
            sa.ForeignKey(f"{schema}.previews.project_id"),
            primary_key=True,
        ),
        sa.Column("path", path, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("is_deleted", sa.Boolean, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        schema=schema,
    )
    op.create_index(
        "project_files_version", "project_files", ["project_id", "version"], schema=schema
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
    if op.get_bind().dialect.name == "sqlite":
        _copy_on_sqlite(op.get_bind(), str(schema))
    else:
        _copy_on_postgresql(op.get_bind(), str(schema))


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    for table in ("jobs", "project_files", "previews"):
        op.drop_table(table, schema=schema)


def _copy_on_postgresql(connection: sa.Connection, schema: str) -> None:
    inspector = sa.inspect(connection)
    if not inspector.has_table("projects", schema="platform"):
        return
    there = {column["name"] for column in inspector.get_columns("projects", schema="platform")}
    if "files_version" not in there:
        return
    lock_tables(connection, "platform.projects", "platform.project_files")
    source = _select_previews("postgresql", there, "platform.")
    connection.exec_driver_sql(f"INSERT INTO {schema}.previews ({PREVIEWS}) {source}")
    source = f"SELECT {FILES} FROM platform.project_files"  # noqa: S608 - ours
    connection.exec_driver_sql(f"INSERT INTO {schema}.project_files ({FILES}) {source}")
    _stay_finished(connection, schema, there)


def _copy_on_sqlite(connection: sa.Connection, schema: str) -> None:
    """Uses its own connection: a database can't be attached inside a transaction."""
    files = {row[1]: row[2] for row in connection.exec_driver_sql("PRAGMA database_list")}
    platform = Path(files[schema]).with_name("platform.db")
    if not platform.exists():
        return
    with closing(sqlite3.connect(f"{platform.as_uri()}?mode=ro", uri=True)) as source:
        source.execute("BEGIN")
        there = {row[1] for row in source.execute("PRAGMA table_info(projects)")}
        if "files_version" not in there:
            return
        for table, columns, select in (
            ("previews", PREVIEWS, _select_previews("sqlite", there, "")),
            ("project_files", FILES, f"SELECT {FILES} FROM project_files"),  # noqa: S608 - ours
        ):
            places = ", ".join("?" * len(columns.split(",")))
            insert = f"INSERT INTO {schema}.{table} ({columns}) VALUES ({places})"  # noqa: S608
            rows = source.execute(select)
            while some := rows.fetchmany(ROWS_AT_ONCE):
                connection.exec_driver_sql(insert, some)
    _stay_finished(connection, schema, there)


def _select_previews(engine: str, there: set[str], prefix: str) -> str:
    """Every project with a preview or files."""
    is_finished = not set(OLD_COLUMNS) <= there
    old = "NULL, NULL" if is_finished else "sandbox_id, preview_url"
    has_old = "FALSE" if is_finished else "(sandbox_id IS NOT NULL OR preview_url IS NOT NULL)"
    running_until = RUNNING_UNTIL[engine].format(has_old=has_old)
    return f"""
        SELECT project_id, owner_account_id, created_at, {old}, sandbox_info, preview_attempt,
            preview_attempt_until, {running_until}, files_version, preview_revision + 1
        FROM {prefix}projects AS project
        WHERE sandbox_info IS NOT NULL OR {has_old} OR preview_attempt IS NOT NULL
            OR files_version > 0 OR EXISTS (
                SELECT 1 FROM {prefix}project_files AS file
                WHERE file.project_id = project.project_id)
    """  # noqa: S608 - ours


def _stay_finished(connection: sa.Connection, schema: str, there: set[str]) -> None:
    """If `sandyard previews migrate finish` dropped the old columns, they stay dropped."""
    if not set(OLD_COLUMNS) <= there:
        for column in OLD_COLUMNS:
            connection.exec_driver_sql(f"ALTER TABLE {schema}.previews DROP COLUMN {column}")
