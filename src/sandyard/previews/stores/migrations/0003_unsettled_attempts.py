"""An attempt counts as running until it is settled, whether its time is over or not."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

UNSETTLED = {"postgresql": "9999-12-31T00:00:00Z", "sqlite": "9999-12-31T00:00:00.000000Z"}
UNTIL_ITS_TIME = {
    "postgresql": "GREATEST((sandbox_info->>'end_time')::timestamptz, attempt_until)",
    "sqlite": """MAX(
        COALESCE(substr(json_extract(sandbox_info, '$.end_time'), 1, 23) || '000Z', ''),
        attempt_until)""",
}


def upgrade() -> None:
    _set_running_until(f"'{UNSETTLED[op.get_bind().dialect.name]}'")


def downgrade() -> None:
    _set_running_until(UNTIL_ITS_TIME[op.get_bind().dialect.name])


def _set_running_until(value: str) -> None:
    schema = op.get_context().version_table_schema
    op.execute(
        sa.text(f"UPDATE {schema}.previews SET running_until = {value} WHERE attempt IS NOT NULL")  # noqa: S608 - ours
    )
