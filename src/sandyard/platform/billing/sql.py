"""Bills on SQLite or PostgreSQL."""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.paging import Page
from sandyard.kit.sql.column_types import unix_seconds
from sandyard.kit.sql.entities import find_entities, find_entity
from sandyard.kit.sql.transitions import EntityTable, FactReader, SqlEntityStore
from sandyard.platform.billing.model import (
    BILLING,
    Bill,
    Spending,
    SpendWarnings,
    Sum,
    SumBy,
    UsageVersion,
)
from sandyard.platform.billing.ports import BillQuery, UsagesBetween
from sandyard.platform.entities.model import Listing
from sandyard.platform.entities.sql import SqlListing
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.sql.store import SANDBOXES
from sandyard.platform.schema import tables
from sandyard.platform.usage.model import NOTHING, Consumption, Usage, midnight, rounded
from sandyard.platform.usage.sql import USAGES

_DAY_SEC = 86_400
_usage = tables.sandbox_usage.c
_HOURS = (_usage.cpu_hours, _usage.memory_hours, _usage.storage_hours)

Conditions = Sequence[sa.ColumnElement[bool]]


def usages_between(
    connection: sa.Connection, wanted: Conditions, since: datetime, until: datetime, by: SumBy
) -> UsagesBetween:
    running = sa.select(tables.sandbox_usage).where(*wanted, _usage.end_time.is_(None))
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
    rows += connection.execute(
        sa.select(tables.sandbox_usage).where(*closed, sa.not_(is_within_day))
    )
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


BILLS = EntityTable(Bill, tables.billing_records)

_column = tables.billing_records.c
_usage = tables.sandbox_usage.c
_LISTING = SqlListing(
    BILLS,
    special={
        "from_day": lambda day: _column.billing_date >= day,
        "to_day": lambda day: _column.billing_date <= day,
        "is_charge": lambda _: _column.usage_id.is_(None),
    },
)
_EXACT = (_column.amount, _column.cpu_hours, _column.memory_hours, _column.storage_hours)
_MILLISECONDS = sa.func.coalesce(_column.usage_milliseconds, 1000 * _column.usage_seconds)
_BATCH = 500


class SqlBillingStore(SqlEntityStore):
    async def apply(
        self, *transitions: Transition[Any], extra_events: Sequence[Event] = ()
    ) -> bool:
        try:
            return await super().apply(*transitions, extra_events=extra_events)
        except IntegrityError:  # that day was billed meanwhile, or there is no such account
            return False

    async def unbilled(self, *, after: int, limit: int) -> Sequence[tuple[int, Usage]]:
        statement = (
            sa.select(tables.sandbox_usage)
            .where(_usage.is_billed.is_(False), _usage.id > after)
            .order_by(_usage.id)
            .limit(limit)
        )
        return [(row.id, USAGES.entity_of(row)) for row in await self._rows(statement)]

    async def find_usage(self, usage_id: str) -> Usage | None:
        return await find_entity(self._database, USAGES, _usage.usage_id == usage_id)

    async def find_bill(self, billing_id: str) -> Bill | None:
        return await find_entity(self._database, BILLS, _column.billing_id == billing_id)

    async def bills_of(self, usage_ids: Sequence[str]) -> Mapping[str, Sequence[Bill]]:
        found: dict[str, list[Bill]] = defaultdict(list)
        for bill in await find_entities(self._database, BILLS, _column.usage_id.in_(usage_ids)):
            found[bill.usage_id or ""].append(bill)
        return found

    async def spendings(self, month: date) -> Sequence[Spending]:
        warned = sa.exists().where(*_warnings(tables.users.c.account_id, month))
        watched = sa.select(tables.users.c.account_id, tables.users.c.spend_threshold).where(
            tables.users.c.spend_threshold.is_not(None), sa.not_(warned)
        )
        thresholds = {row.account_id: row.spend_threshold for row in await self._rows(watched)}
        this_month = sa.or_(_usage.end_time.is_(None), _usage.end_time > midnight(month))
        usages: dict[str, list[Usage]] = {account_id: [] for account_id in thresholds}
        watched_usages = _usage.user_account_id.in_(thresholds)
        for usage in await find_entities(self._database, USAGES, watched_usages, this_month):
            usages[usage.user_account_id].append(usage)
        charged = (
            sa.select(
                _column.user_account_id, sa.func.sum(_column.amount, type_=_column.amount.type)
            )
            .where(
                _column.usage_id.is_(None),
                _column.billing_date >= month,
                _column.user_account_id.in_(thresholds),
            )
            .group_by(_column.user_account_id)
        )
        charges = {row[0]: row[1] for row in await self._rows(charged)}
        return [
            Spending(
                threshold,
                usages[account_id],
                SpendWarnings(account_id, month, 0),
                charges.get(account_id, NOTHING),
            )
            for account_id, threshold in thresholds.items()
        ]

    async def usages_between(
        self,
        account_id: str,
        since: datetime,
        until: datetime,
        *,
        by: SumBy,
        sandbox_id: str | None,
    ) -> UsagesBetween:
        wanted = [_usage.user_account_id == account_id]
        if sandbox_id is not None:
            wanted.append(_usage.sandbox_id == sandbox_id)
        return await self._database.read(
            lambda connection: usages_between(connection, wanted, since, until, by)
        )

    async def with_snapshot(self, account_id: str) -> Sequence[Sandbox]:
        column = tables.sandboxes.c
        own = column.owner_account_id == account_id
        return await find_entities(
            self._database, SANDBOXES, own, column.latest_snapshot_id.is_not(None)
        )

    async def page(self, account_id: str, listing: Listing[BillQuery]) -> Page[Bill]:
        own = _column.user_account_id == account_id
        return await _LISTING.page(self._database, listing, own, name=f"bills {account_id}")

    async def sums(self, account_id: str, query: BillQuery, *, by: SumBy) -> Sequence[Sum]:
        key = {
            "day": _column.billing_date,
            "project": _column.project_id,
            "sandbox": _column.sandbox_id,
            "service_type": _column.service_type,
        }[by]
        statement = (
            sa.select(
                key.label("key"),
                sa.func.sum(_column.usage_seconds),
                sa.func.sum(_MILLISECONDS),
                *(sa.func.sum(each, type_=each.type) for each in _EXACT),
            )
            .where(_column.user_account_id == account_id, *_LISTING.matching(query))
            .group_by(key)
            .order_by(key)
        )
        return [
            Sum(_text(key), Consumption(int(seconds), int(milliseconds), *exact))
            for key, seconds, milliseconds, *exact in await self._rows(statement)
        ]

    async def bills(self, account_id: str, query: BillQuery) -> AsyncIterator[Sequence[Bill]]:
        cursor = None
        while True:
            page = await self.page(account_id, Listing(query, "billing_date", _BATCH, cursor))
            if page.items:
                yield page.items
            if (cursor := page.next_cursor) is None:
                return

    async def _rows(self, statement: sa.Select[Any]) -> Sequence[Any]:
        return await self._database.read(lambda connection: connection.execute(statement).all())


def _warnings(account_id: Any, month: date) -> tuple[sa.ColumnElement[bool], ...]:
    """Deleted notifications count too."""
    column = tables.notifications.c
    return (
        column.user_account_id == account_id,
        column.related_entity_type == BILLING,
        column.created_at >= midnight(month),
    )


def _read_warnings(connection: sa.Connection, fact: SpendWarnings) -> SpendWarnings:
    counted = sa.select(sa.func.count()).where(*_warnings(fact.account_id, fact.month))
    return SpendWarnings(fact.account_id, fact.month, connection.execute(counted).scalar_one())


def _read_version(connection: sa.Connection, fact: UsageVersion) -> UsageVersion:
    """Locks the row, because closing the usage takes no lock by its name."""
    statement = sa.select(_usage.sequence).where(_usage.usage_id == fact.usage_id)
    sequence = connection.execute(statement.with_for_update(read=True)).scalar_one()
    return UsageVersion(fact.usage_id, sequence)


BILLING_FACTS = {
    SpendWarnings: FactReader(lambda fact: f"spending {fact.account_id}", _read_warnings),
    UsageVersion: FactReader(lambda fact: f"usage {fact.usage_id}", _read_version),
}


def _text(key: Any) -> str:
    return key.isoformat() if isinstance(key, date) else str(key or "")
