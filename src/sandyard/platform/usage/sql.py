"""Usage on SQLite or PostgreSQL."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

import sqlalchemy as sa

from sandyard.kit.paging import Page
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.transitions import EntityTable
from sandyard.platform.entities.model import Listing
from sandyard.platform.entities.sql import SqlListing
from sandyard.platform.schema.tables import sandbox_usage
from sandyard.platform.usage.model import Usage
from sandyard.platform.usage.ports import UsageQuery

USAGES = EntityTable(Usage, sandbox_usage)

_column = sandbox_usage.c
_is_open = _column.end_time.is_(None)
_LISTING = SqlListing(
    USAGES,
    special={
        "is_open": lambda is_open: _is_open if is_open else sa.not_(_is_open),
        "start": lambda start: _column.start_time >= start,
        "end": lambda end: _column.start_time < end,
    },
)


class SqlUsageStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, account_id: str, listing: Listing[UsageQuery]) -> Page[Usage]:
        own = _column.user_account_id == account_id
        return await _LISTING.page(self._database, listing, own, name=f"usage {account_id}")


def costs_of(
    connection: sa.Connection, *, sandbox_ids: Sequence[str], now: datetime
) -> Mapping[str, Decimal]:
    """The cost of each sandbox up to now, running and storage; two statements for all of them."""
    costs: dict[str, Decimal] = defaultdict(Decimal)
    if not sandbox_ids:
        return costs
    of_sandboxes = _column.sandbox_id.in_(sandbox_ids)
    closed = (
        sa.select(_column.sandbox_id, sa.func.sum(_column.cost, type_=_column.cost.type))
        .where(of_sandboxes, _column.end_time.is_not(None))
        .group_by(_column.sandbox_id)
    )
    for sandbox_id, cost in connection.execute(closed):
        costs[sandbox_id] += cost
    going_on = sa.select(sandbox_usage).where(of_sandboxes, _column.end_time.is_(None))
    for row in connection.execute(going_on):
        costs[row.sandbox_id] += USAGES.entity_of(row).cost_until(now)
    return costs


def find_open_usage(connection: sa.Connection, sandbox_id: str) -> Usage | None:
    is_open = (_column.sandbox_id == sandbox_id, _column.end_time.is_(None))
    row = connection.execute(sa.select(sandbox_usage).where(*is_open)).first()
    return None if row is None else USAGES.entity_of(row)
