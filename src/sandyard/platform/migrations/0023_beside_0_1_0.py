"""What lets a server of 0.1.0 go on beside this release: its changes are counted, and its bills are
left to this one.

0.1.0 changes rows without counting their `sequence` up, which every change of this release is
compared with. A trigger does that for it. It never tells when a sandbox was last seen, so what was
told before is of another run. It corrects bills by deleting and overwriting them: the lease of its
job is held for good, and this release's job has another.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
oldest_code = "0002"

NO_STATE: dict[str, tuple[str, ...]] = {
    "users": ("last_login", "verification_token", "spend_notified_at", "cleared_at"),
    "pending_signups": (),
    "api_keys": ("last_used_at",),
    "projects": (
        *("sandbox_id", "preview_url", "sandbox_info", "preview_revision", "preview_attempt"),
        *("preview_attempt_until", "files_version", "cleared_at"),
    ),
    "templates": (),
    "notifications": (),
    "sandboxes": ("last_seen_at", "last_used_at"),
    "sandbox_usage": (),
    "billing_records": ("cpu_hours", "memory_hours", "storage_hours"),
}
"""Of each table the columns that are written without a change of state."""

COUNT_CHANGE = """
CREATE FUNCTION {schema}.count_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF to_jsonb(NEW) - TG_ARGV IS DISTINCT FROM to_jsonb(OLD) - TG_ARGV THEN
        NEW.sequence := OLD.sequence + 1;
        IF TG_TABLE_NAME = 'sandboxes' THEN
            NEW.last_seen_at := NULL;
        END IF;
    END IF;
    RETURN NEW;
END $$
"""
TRIGGER = """
CREATE TRIGGER count_change BEFORE UPDATE ON {schema}.{table}
FOR EACH ROW WHEN (NEW.sequence = OLD.sequence)
EXECUTE FUNCTION {schema}.count_change({columns})
"""
HOLD_BILLING = """
INSERT INTO {schema}.jobs (job, holder, held_until) VALUES ('billing', 'a newer release', 1e12)
ON CONFLICT (job) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
"""


def upgrade() -> None:
    """Only PostgreSQL is ever shared by two releases."""
    schema = op.get_context().version_table_schema
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute(sa.text(COUNT_CHANGE.format(schema=schema)))
    for table, names in NO_STATE.items():
        columns = ", ".join(f"'{name}'" for name in ("sequence", *names))
        op.execute(sa.text(TRIGGER.format(schema=schema, table=table, columns=columns)))
    op.execute(sa.text(HOLD_BILLING.format(schema=schema)))


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute(f"DROP FUNCTION {schema}.count_change CASCADE")
    op.execute(f"DELETE FROM {schema}.jobs WHERE job = 'billing'")  # noqa: S608 - ours
