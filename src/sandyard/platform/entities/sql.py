"""Listings on SQLite or PostgreSQL."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, ClassVar, Generic

import sqlalchemy as sa

from sandyard.kit.changes.transitions import E
from sandyard.kit.paging import Page
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.entities import contains, find_entities, find_entity, page_of_entities
from sandyard.kit.sql.transitions import EntityTable, SqlEntityStore
from sandyard.platform.entities.model import Listing

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
        values = {each.name: getattr(only, each.name) for each in fields(only)}
        return [self._condition(name, value) for name, value in values.items() if value is not None]

    def _condition(self, name: str, value: Any) -> Condition:
        if name in self.special:
            return self.special[name](value)
        if name == "search":
            return contains(value, *self.searched)
        column = self.entities.table.c[name]
        return column.is_(value) if isinstance(value, bool) else column == value


class SqlOwnedStore(SqlEntityStore, Generic[E]):
    listing: SqlListing[E]
    cursor_name: ClassVar[str]
    """Cursors of other listings are invalid."""

    def visible_to(self, account_id: str) -> Sequence[Condition]:
        """Its own that are not deleted, unless a noun says otherwise."""
        entities = self.listing.entities
        owner = entities.column(entities.entity.OWNER or "")
        return (owner == account_id, entities.column("deleted_at").is_(None))

    async def find(self, account_id: str, entity_id: str) -> E | None:
        entities = self.listing.entities
        this = entities.subject == entity_id
        return await find_entity(self._database, entities, *self.visible_to(account_id), this)

    async def page(self, account_id: str, listing: Listing[Any]) -> Page[E]:
        visible, name = self.visible_to(account_id), f"{self.cursor_name} {account_id}"
        return await self.listing.page(self._database, listing, *visible, name=name)


class SqlStoredThings(SqlOwnedStore[E]):
    """Of entities whose storage becomes usage, deleted ones too until all of it has."""

    async def find_any(self, subject: str) -> E | None:
        entities = self.listing.entities
        return await find_entity(self._database, entities, entities.subject == subject)

    async def uncounted(self, until: datetime, *, limit: int, after: str) -> Sequence[E]:
        entities = self.listing.entities
        wanted = (entities.column("storage_counted_until") < until, entities.subject > after)
        order = entities.subject
        return await find_entities(self._database, entities, *wanted, limit=limit, order=order)
