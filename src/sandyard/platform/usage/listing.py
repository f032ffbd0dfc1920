"""Listings of usage on SQLite or PostgreSQL."""

import sqlalchemy as sa

from sandyard.kit.paging import Page
from sandyard.kit.sql import Database
from sandyard.kit.sql_paging import page_of
from sandyard.platform.tables import sandbox_usage
from sandyard.platform.usage.model import Usage
from sandyard.platform.usage.ports import UsageQuery
from sandyard.platform.usage.sql import usage_of

_column = sandbox_usage.c


class SqlUsageStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, account_id: str, query: UsageQuery, *, limit: int, cursor: str | None
    ) -> Page[Usage]:
        rows, next_cursor = await page_of(
            self._database,
            sa.select(sandbox_usage).where(
                _column.user_account_id == account_id, *_conditions(query)
            ),
            (_column.start_time, _column.id),
            listing=f"usage {account_id} {query}",
            limit=limit,
            cursor=cursor,
        )
        return Page([usage_of(row) for row in rows], next_cursor)


def _conditions(query: UsageQuery) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = []
    if query.sandbox_id is not None:
        conditions.append(_column.sandbox_id == query.sandbox_id)
    if query.project_id is not None:
        conditions.append(_column.project_id == query.project_id)
    if query.service_type is not None:
        conditions.append(_column.service_type == query.service_type)
    if query.is_open is not None:
        is_open = _column.end_time.is_(None)
        conditions.append(is_open if query.is_open else sa.not_(is_open))
    if query.start is not None:
        conditions.append(_column.start_time >= query.start)
    if query.end is not None:
        conditions.append(_column.start_time < query.end)
    return conditions
