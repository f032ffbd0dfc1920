"""Bills on SQLite or PostgreSQL."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

import sqlalchemy as sa

from sandyard.kit.ids import IdMaker
from sandyard.kit.paging import Page
from sandyard.kit.sql import Database, insert_or_ignore
from sandyard.kit.sql_paging import page_of
from sandyard.platform.billing.model import Bill, Sum
from sandyard.platform.billing.ports import BillQuery, Spender, SumBy
from sandyard.platform.notifications.model import Notice
from sandyard.platform.notifications.sql import notify
from sandyard.platform.tables import billing_records, sandbox_usage, sandboxes, users
from sandyard.platform.usage.model import PriceList, Usage, midnight
from sandyard.platform.usage.sql import keep_storage, usage_of

_column = billing_records.c
_PORTION = 500


class SqlBillingStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def count_storage(
        self, *, until: datetime, prices: PriceList, make_usage_id: IdMaker, limit: int
    ) -> int:
        due = (
            sa.select(sandboxes)
            .where(sandboxes.c.storage_counted_until < until)
            .order_by(sandboxes.c.storage_counted_until)
            .limit(limit)
            .with_for_update()
        )

        def work(connection: sa.Connection) -> int:
            rows = connection.execute(due).all()
            for row in rows:
                rate = prices.of_keeping(size_bytes=row.snapshot_bytes or 0)
                keep_storage(connection, row, usage_id=make_usage_id(), rate=rate, until=until)
            if rows:
                connection.execute(
                    sandboxes.update()
                    .where(sandboxes.c.id.in_([row.id for row in rows]))
                    .values(storage_counted_until=until)
                )
            return len(rows)

        return await self._database.write(work)

    async def unbilled(self, *, after: int, limit: int) -> Sequence[tuple[int, Usage]]:
        usage = sandbox_usage.c
        statement = (
            sa.select(sandbox_usage)
            .where(usage.is_billed.is_(False), usage.id > after)
            .order_by(usage.id)
            .limit(limit)
        )
        return [(row.id, usage_of(row)) for row in await self._rows(statement)]

    async def add_bills(self, bills: Sequence[Bill], *, done: Sequence[str]) -> int:
        def work(connection: sa.Connection) -> int:
            _correct(connection, [bill for bill in bills if bill.usage_id in done], done)
            added = 0
            for bill in bills:
                statement = insert_or_ignore(connection, billing_records).values(_row_of(bill))
                added += connection.execute(statement).rowcount
            connection.execute(
                sandbox_usage.update()
                .where(sandbox_usage.c.usage_id.in_(done))
                .values(is_billed=True)
            )
            return added

        return await self._database.write(work)

    async def page(
        self, account_id: str, query: BillQuery, *, limit: int, cursor: str | None
    ) -> Page[Bill]:
        rows, next_cursor = await page_of(
            self._database,
            _select(account_id, query),
            (_column.billing_date, _column.id),
            listing=f"bills {account_id} {query}",
            limit=limit,
            cursor=cursor,
        )
        return Page([_bill(row) for row in rows], next_cursor)

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
                sa.func.sum(_column.amount, type_=_column.amount.type).label("amount"),
                sa.func.sum(_column.usage_seconds).label("seconds"),
            )
            .where(*_conditions(account_id, query))
            .group_by(key)
            .order_by(key)
        )
        return [
            Sum(_text(row.key), row.amount, int(row.seconds)) for row in await self._rows(statement)
        ]

    async def bills(self, account_id: str, query: BillQuery) -> AsyncIterator[Sequence[Bill]]:
        last: tuple[Any, int] | None = None
        while True:
            statement = _select(account_id, query)
            if last is not None:
                statement = statement.where(
                    sa.tuple_(_column.billing_date, _column.id)
                    > sa.tuple_(*last, types=[_column.billing_date.type, _column.id.type])
                )
            ordered = statement.order_by(_column.billing_date, _column.id).limit(_PORTION)
            rows = await self._rows(ordered)
            if rows:
                yield [_bill(row) for row in rows]
            if len(rows) < _PORTION:
                return
            last = (rows[-1].billing_date, rows[-1].id)

    async def spenders(self, *, since: datetime, now: datetime) -> Sequence[Spender]:
        return await self._database.read(partial(_spenders, since=since, now=now))

    async def tell_spender(self, spender: Spender, notice: Notice, *, now: datetime) -> bool:
        month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        not_told = sa.or_(users.c.spend_notified_at.is_(None), users.c.spend_notified_at < month)
        statement = (
            users.update()
            .where(users.c.account_id == spender.account_id, not_told)
            .values(spend_notified_at=now)
        )

        def work(connection: sa.Connection) -> bool:
            is_first = connection.execute(statement).rowcount == 1
            if is_first:
                notify(connection, [spender.account_id], notice, now=now)
            return is_first

        return await self._database.write(work)

    async def _rows(self, statement: sa.Select[Any]) -> Sequence[Any]:
        return await self._database.read(lambda connection: connection.execute(statement).all())


def _spenders(connection: sa.Connection, since: datetime, now: datetime) -> Sequence[Spender]:
    """The month's closed usages by their cost, those that go on by what they come to now."""
    not_told = sa.or_(users.c.spend_notified_at.is_(None), users.c.spend_notified_at < since)
    watched = {
        row.account_id: row.spend_threshold
        for row in connection.execute(
            sa.select(users.c.account_id, users.c.spend_threshold).where(
                users.c.spend_threshold.is_not(None), not_told
            )
        )
    }
    spent: dict[str, Decimal] = dict.fromkeys(watched, Decimal(0))
    usage = sandbox_usage.c
    this_month = sa.or_(usage.end_time.is_(None), usage.end_time > since)
    of_watched = sa.select(sandbox_usage).where(usage.user_account_id.in_(watched), this_month)
    for row in connection.execute(of_watched):
        found = usage_of(row)
        spent[found.account_id] += found.cost_until(now) - found.cost_until(since)
    return [
        Spender(account, threshold, spent[account])
        for account, threshold in watched.items()
        if spent[account] >= threshold
    ]


def _correct(connection: sa.Connection, bills: Sequence[Bill], done: Sequence[str]) -> None:
    """Bring what was billed while a usage went on to what it came to: its true end may have become
    known only after a midnight that it did not reach."""
    wanted = {(bill.usage_id, bill.billing_date): bill for bill in bills}
    billed = sa.select(billing_records).where(_column.usage_id.in_(done))
    for row in connection.execute(billed).all():
        bill = wanted.get((row.usage_id, row.billing_date.date()))
        this = _column.id == row.id
        if bill is None:
            connection.execute(billing_records.delete().where(this))
        elif (bill.usage_seconds, bill.amount) != (row.usage_seconds, row.amount):
            connection.execute(
                billing_records.update()
                .where(this)
                .values(usage_seconds=bill.usage_seconds, amount=bill.amount)
            )


def _conditions(account_id: str, query: BillQuery) -> list[sa.ColumnElement[bool]]:
    conditions = [_column.user_account_id == account_id]
    if query.project_id is not None:
        conditions.append(_column.project_id == query.project_id)
    if query.sandbox_id is not None:
        conditions.append(_column.sandbox_id == query.sandbox_id)
    if query.service_type is not None:
        conditions.append(_column.service_type == query.service_type)
    if query.from_day is not None:
        conditions.append(_column.billing_date >= midnight(query.from_day))
    if query.to_day is not None:
        conditions.append(_column.billing_date <= midnight(query.to_day))
    return conditions


def _select(account_id: str, query: BillQuery) -> sa.Select[Any]:
    return sa.select(billing_records).where(*_conditions(account_id, query))


def _text(key: Any) -> str:
    return key.date().isoformat() if isinstance(key, datetime) else str(key or "")


def _row_of(bill: Bill) -> dict[str, Any]:
    row = asdict(bill)
    row["user_account_id"] = row.pop("account_id")
    row["billing_date"] = midnight(bill.billing_date)
    return row


def _bill(row: Any) -> Bill:
    return Bill(
        billing_id=row.billing_id,
        usage_id=row.usage_id,
        account_id=row.user_account_id,
        project_id=row.project_id,
        sandbox_id=row.sandbox_id,
        billing_date=row.billing_date.date(),
        service_type=row.service_type,
        usage_seconds=row.usage_seconds,
        hourly_rate=row.hourly_rate,
        amount=row.amount,
        description=row.description,
        created_at=row.created_at,
    )
