"""Bills of no usage: charges and credits."""

from alembic import op

from sandyard.kit.sql.shared_tables import edit_definition, is_postgres, schema

revision = "0027"
down_revision = "0026"
oldest_code = "0023"

_ANY, _REQUIRED = "usage_id VARCHAR(25),", "usage_id VARCHAR(25) NOT NULL,"


def upgrade() -> None:
    _set_nullable(nullable=True)


def downgrade() -> None:
    op.execute(f"DELETE FROM {schema()}.billing_records WHERE usage_id IS NULL")  # noqa: S608 - ours
    _set_nullable(nullable=False)


def _set_nullable(*, nullable: bool) -> None:
    if is_postgres():
        op.alter_column("billing_records", "usage_id", nullable=nullable, schema=schema())
    else:
        old, new = (_REQUIRED, _ANY) if nullable else (_ANY, _REQUIRED)
        edit_definition("billing_records", lambda sql: sql.replace(old, new))
