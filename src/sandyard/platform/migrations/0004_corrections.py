"""Bills that correct others, and the hours of each bill."""

from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import sqlalchemy as sa
from alembic import op

from sandyard.kit.sql.column_types import Money, UtcTime

revision = "0004"
down_revision = "0003"
oldest_code = "0002"

MONEY = sa.Numeric(18, 6).with_variant(sa.BigInteger, "sqlite")
HOURS = ("cpu_hours", "memory_hours", "storage_hours")
_ONE_BILL = "one_bill_per_usage_and_day"
_BY_END = "usage_of_account_by_end"
_BATCH = 500
_MILLIONTH = Decimal("0.000001")
_FIND_CORRECTED = """
UPDATE {table} SET corrects = (
    SELECT first.billing_id FROM {table} AS first
    WHERE first.usage_id = billing_records.usage_id
    AND first.billing_date = billing_records.billing_date
    AND first.usage_seconds >= 0
) WHERE usage_seconds < 0
"""
"""Corrections are there if this schema was left for the one before."""


def upgrade() -> None:
    schema = op.get_context().version_table_schema
    here = f"{schema}." if op.get_bind().dialect.name == "postgresql" else ""
    reference = f"REFERENCES {here}billing_records (billing_id)"
    op.execute(f"ALTER TABLE {schema}.billing_records ADD COLUMN corrects VARCHAR(25) {reference}")
    for name in HOURS:
        hours = sa.Column(name, MONEY, nullable=False, server_default="0")
        op.add_column("billing_records", hours, schema=schema)
    _fill_in_hours(schema)
    op.execute(_FIND_CORRECTED.format(table=f"{schema}.billing_records"))
    _one_bill_where("corrects IS NULL", schema)
    by_end = ["user_account_id", "end_time", "id"]
    op.create_index(_BY_END, "sandbox_usage", by_end, schema=schema)


def downgrade() -> None:
    schema = op.get_context().version_table_schema
    op.drop_index(_BY_END, "sandbox_usage", schema=schema)
    # Corrections stay: a day that was corrected has lost seconds, and its usage is billed for good.
    _one_bill_where("usage_seconds >= 0", schema)
    for name in (*HOURS, "corrects"):
        op.drop_column("billing_records", name, schema=schema)


def _one_bill_where(condition: str, schema: str | None) -> None:
    op.drop_index(_ONE_BILL, "billing_records", schema=schema)
    op.create_index(
        _ONE_BILL,
        "billing_records",
        ["usage_id", "billing_date", "service_type"],
        schema=schema,
        unique=True,
        sqlite_where=sa.text(condition),
        postgresql_where=sa.text(condition),
    )


def _fill_in_hours(schema: str | None) -> None:
    """Of each bill that is there: up to its end less those up to its start."""
    connection = op.get_bind()
    bills = sa.table(
        "billing_records",
        *(sa.column(name) for name in ("id", "usage_id", "usage_seconds")),
        sa.column("billing_date", UtcTime),
        *(sa.column(name, Money) for name in HOURS),
        schema=schema,
    )
    usages = sa.table(
        "sandbox_usage",
        sa.column("usage_id"),
        sa.column("start_time", UtcTime),
        *(sa.column(name, sa.Double) for name in ("cpu", "memory_gb", "storage_gb")),
        schema=schema,
    )
    page = (
        sa.select(bills.c.id, bills.c.billing_date, bills.c.usage_seconds, *usages.c)
        .join(usages, usages.c.usage_id == bills.c.usage_id)
        .order_by(bills.c.id)
        .limit(_BATCH)
    )
    this = {name: sa.bindparam(f"new_{name}", type_=Money) for name in HOURS}
    update = bills.update().where(bills.c.id == sa.bindparam("this")).values(this)
    last = 0
    while rows := connection.execute(page.where(bills.c.id > last)).all():
        connection.execute(update, [{"this": row.id} | _hours(row) for row in rows])
        last = rows[-1].id


def _hours(bill: Any) -> dict[str, Decimal]:
    begun = int(bill.billing_date.timestamp()) - int(bill.start_time.timestamp())
    before, seconds = max(0, begun), bill.usage_seconds
    units = (bill.cpu, bill.memory_gb, bill.storage_gb)
    return {
        f"new_{name}": _rounded(unit, before + seconds) - _rounded(unit, before)
        for name, unit in zip(HOURS, units, strict=True)
    }


def _rounded(units: float, seconds: int) -> Decimal:
    return (Decimal(str(units)) * seconds / 3600).quantize(_MILLIONTH, rounding=ROUND_HALF_EVEN)
