"""What lets a server of 0.1.0 go on beside this release: each sees the previews and files of the
other.

0.1.0 keeps previews in the Platform's `projects` and files in its `project_files`. Triggers write a
change of either side to the other in the same transaction. Files are kept once, and 0.1.0 has a
view of them. Where two changes meet, PostgreSQL ends one as a deadlock, and either release runs its
own again.
"""

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.schema_locks import lock_tables

revision = "0004"
down_revision = "0003"

OLD_COLUMNS = ("sandbox_id", "preview_url")
FILES = "project_id, path, content, size, is_deleted, version, updated_at"
OLD_FILES = "platform.project_files"

TAKE = """
CREATE FUNCTION previews.take_from_projects() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    info jsonb := NEW.sandbox_info;
BEGIN
    INSERT INTO previews.previews AS preview (
        project_id, account_id, created_at, {old_names} sandbox_info, last_checked, attempt,
        attempt_until, running_until, files_version, sequence
    ) VALUES (
        NEW.project_id, NEW.owner_account_id, NEW.created_at, {old_values} info - 'last_checked',
        (info->>'last_checked')::timestamptz, NEW.preview_attempt, NEW.preview_attempt_until,
        CASE WHEN NEW.preview_attempt IS NULL THEN (info->>'end_time')::timestamptz
        ELSE '9999-12-31T00:00:00Z' END,
        NEW.files_version, extract(epoch FROM now())
    )
    ON CONFLICT (project_id) DO UPDATE SET
        {old_updates} sandbox_info = excluded.sandbox_info, last_checked = excluded.last_checked,
        attempt = excluded.attempt, attempt_until = excluded.attempt_until,
        running_until = excluded.running_until, files_version = excluded.files_version,
        sequence = preview.sequence + 1;
    RETURN NULL;
END $$
"""
GIVE = """
CREATE FUNCTION previews.give_to_projects() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    checked text := to_char(NEW.last_checked AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
BEGIN
    UPDATE platform.projects SET
        {old_given} sandbox_info = NEW.sandbox_info
            || jsonb_strip_nulls(jsonb_build_object('last_checked', checked)),
        preview_attempt = NEW.attempt, preview_attempt_until = NEW.attempt_until,
        files_version = NEW.files_version, preview_revision = preview_revision + 1
    WHERE project_id = NEW.project_id;
    RETURN NULL;
END $$
"""
TRIGGERS = (
    """
CREATE TRIGGER take_from_projects AFTER UPDATE ON platform.projects FOR EACH ROW
WHEN (pg_trigger_depth() = 0 AND NEW.deleted_at IS NULL
    AND (NEW.preview_revision, NEW.files_version, NEW.sandbox_info)
    IS DISTINCT FROM (OLD.preview_revision, OLD.files_version, OLD.sandbox_info))
EXECUTE FUNCTION previews.take_from_projects()
""",
    """
CREATE TRIGGER give_to_projects AFTER INSERT OR UPDATE ON previews.previews FOR EACH ROW
WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION previews.give_to_projects()
""",
)


def upgrade() -> None:
    """Only PostgreSQL is ever shared by two releases."""
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    inspector = sa.inspect(connection)
    if not inspector.has_table("project_files", schema="platform"):
        return
    lock_tables(connection, "platform.projects", OLD_FILES)
    there = {column["name"] for column in inspector.get_columns("projects", schema="platform")}
    _show_files()
    _create_triggers(has_old=set(OLD_COLUMNS) <= there)


def downgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    for function in ("take_from_projects", "give_to_projects"):
        op.execute(f"DROP FUNCTION IF EXISTS previews.{function} CASCADE")
    _belong_to_previews("NOT DEFERRABLE")
    if "project_files" in sa.inspect(connection).get_view_names(schema="platform"):
        _copy_files_back()


def _show_files() -> None:
    """Deferrable, because 0.1.0 writes a project's first files before the row that registers the
    project here."""
    _belong_to_previews("DEFERRABLE INITIALLY DEFERRED")
    op.execute(f"DROP TABLE {OLD_FILES}")
    view = f"SELECT 0::bigint AS id, {FILES} FROM previews.project_files"  # noqa: S608 - ours
    op.execute(f"CREATE VIEW {OLD_FILES} AS {view}")


def _belong_to_previews(when: str) -> None:
    key = "project_files_project_id_fkey"
    op.execute(f"ALTER TABLE previews.project_files ALTER CONSTRAINT {key} {when}")


def _create_triggers(*, has_old: bool) -> None:
    """`has_old`: the columns that `sandbox_info` replaces have not been dropped yet."""
    old = OLD_COLUMNS if has_old else ()
    fragments = {
        "old_names": "".join(f"{name}, " for name in old),
        "old_values": "".join(f"NEW.{name}, " for name in old),
        "old_updates": "".join(f"{name} = excluded.{name}, " for name in old),
        "old_given": "".join(f"{name} = to_jsonb(NEW)->>'{name}', " for name in old),
    }
    for statement in (TAKE, GIVE, *TRIGGERS):
        op.get_bind().exec_driver_sql(statement.format(**fragments))


def _copy_files_back() -> None:
    op.execute(f"DROP VIEW {OLD_FILES}")
    op.create_table(
        "project_files",
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column(
            "project_id",
            sa.String(25),
            sa.ForeignKey("platform.projects.project_id"),
            nullable=False,
        ),
        sa.Column("path", sa.String(512, collation="C"), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("is_deleted", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        schema="platform",
    )
    for column, unique in (("path", True), ("version", False)):
        name, columns = f"project_files_{column}", ["project_id", column]
        op.create_index(name, "project_files", columns, unique=unique, schema="platform")
    source = f"SELECT {FILES} FROM previews.project_files"  # noqa: S608 - ours
    op.execute(f"INSERT INTO {OLD_FILES} ({FILES}) {source}")
