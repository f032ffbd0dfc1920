"""Totals of usages, summed by the engine where a usage lies within one UTC day.

An account may have had tens of thousands of runs in a month. Those that cross midnight are few and
have to be split, so they are read one by one.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from sandyard.kit.sql.column_types import unix_seconds
from sandyard.platform.billing.model import Sum, SumBy
from sandyard.platform.billing.ports import UsagesBetween
from sandyard.platform.schema.tables import sandbox_usage
from sandyard.platform.usage.model import Consumption, rounded
from sandyard.platform.usage.sql import USAGES

_DAY_SEC = 86_400
_usage = sandbox_usage.c
_HOURS = (_usage.cpu_hours, _usage.memory_hours, _usage.storage_hours)

Conditions = Sequence[sa.ColumnElement[bool]]


def usages_between(
    connection: sa.Connection, wanted: Conditions, since: datetime, until: datetime, by: SumBy
) -> UsagesBetween:
    running = sa.select(sandbox_usage).where(*wanted, _usage.end_time.is_(None))
    rows = list(connection.execute(running))
    began, ended = (unix_seconds(connection, each) for each in (_usage.start_time, _usage.end_time))
    closed = (
        *wanted,
        _usage.end_time > since,
        _usage.id.not_in([row.id for row in rows]),  # one of them may be closed by now
    )
    is_within_day = sa.and_(
        _usage.start_time >= since,
        _usage.end_time <= until,
        _counted_ms(began, ended) > 0,
        began // _DAY_SEC == ended // _DAY_SEC,
    )
    summed = _sums(by, began, ended).where(*closed, is_within_day)
    rows += connection.execute(sa.select(sandbox_usage).where(*closed, sa.not_(is_within_day)))
    return UsagesBetween(
        [_sum(row, by) for row in connection.execute(summed)],
        [USAGES.entity_of(row) for row in rows],
    )


def _counted_ms(
    began: sa.ColumnElement[int], ended: sa.ColumnElement[int]
) -> sa.ColumnElement[int]:
    """An older version counted whole seconds."""
    return sa.func.coalesce(_usage.milliseconds, 1000 * (ended - began))


def _sums(by: SumBy, began: sa.ColumnElement[int], ended: sa.ColumnElement[int]) -> sa.Select[Any]:
    keys: dict[SumBy, sa.ColumnElement[Any]] = {
        "day": began // _DAY_SEC,
        "project": _usage.project_id,
        "sandbox": _usage.sandbox_id,
        "service_type": _usage.service_type,
    }
    key = keys[by].label("summed")
    return sa.select(
        key,
        sa.func.sum(_counted_ms(began, ended) // 1000),
        sa.func.sum(_counted_ms(began, ended)),
        sa.func.sum(_usage.cost, type_=_usage.cost.type),
        *(sa.func.sum(each) for each in _HOURS),
    ).group_by(sa.literal_column("summed"))


def _sum(row: sa.Row[Any], by: SumBy) -> Sum:
    values: Sequence[Any] = row
    key, seconds, milliseconds, cost, *hours = values
    if by == "day":
        key = datetime.fromtimestamp(key * _DAY_SEC, UTC).date().isoformat()
    exact = (rounded(Decimal(repr(each))) for each in hours)
    return Sum(key or "", Consumption(int(seconds), int(milliseconds), cost, *exact))
