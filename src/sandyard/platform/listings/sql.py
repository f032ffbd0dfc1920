"""Listings on SQLite or PostgreSQL."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Generic

import sqlalchemy as sa

from sandyard.kit.changes.transitions import E
from sandyard.kit.paging import Page
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import contains, page_of_entities
from sandyard.kit.sql.transitions import EntityTable
from sandyard.platform.listings.model import Listing

Condition = sa.ColumnElement[bool]


@dataclass(frozen=True, slots=True)
class SqlListing(Generic[E]):
    """How entities of one kind are found, ordered and paged."""

    entities: EntityTable[E]
    searched: Sequence[sa.Column[Any]] = ()
    """The columns that the filter's `search` looks into."""
    special: Mapping[str, Callable[[Any], Condition]] = field(default_factory=dict)
    """The conditions of filter fields that are not named like a column."""

    async def page(
        self, database: Database, listing: Listing[Any], *conditions: Condition, name: str
    ) -> Page[E]:
        """The entities that meet the conditions and the filter. `name` makes cursors invalid in
        other listings."""
        column = self.entities.table.c[listing.sort.removeprefix("-")]
        return await page_of_entities(
            database,
            self.entities,
            *conditions,
            *self.matching(listing.only),
            order=(column, self.entities.table.c.id),
            descending=listing.sort.startswith("-"),
            listing=f"{name} {listing.only} {listing.sort}",
            limit=listing.limit,
            cursor=listing.cursor,
        )

    def matching(self, only: Any) -> list[Condition]:
        """The conditions of a filter."""
        values = {each.name: getattr(only, each.name) for each in fields(only)}
        return [self._condition(name, value) for name, value in values.items() if value is not None]

    def _condition(self, name: str, value: Any) -> Condition:
        if name in self.special:
            return self.special[name](value)
        if name == "search":
            return contains(value, *self.searched)
        column = self.entities.table.c[name]
        return column.is_(value) if isinstance(value, bool) else column == value
