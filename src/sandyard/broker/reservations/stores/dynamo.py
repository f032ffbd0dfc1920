"""Reservations on DynamoDB: one item each, one index partition of the open ones, and one of all,
ordered by their ends."""

from collections.abc import Sequence

from sandyard.broker.pool.model import Sandbox
from sandyard.broker.pool.stores.dynamo_items import sandbox_key, sandbox_of
from sandyard.broker.pool.stores.index_scan import Wanted
from sandyard.broker.reservations.model import Reservation
from sandyard.broker.stores.dynamo_entities import (
    CALENDAR,
    OPEN,
    entity_of,
    find_entity,
    reservation_key,
)
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.kit.dynamo.items import Table
from sandyard.kit.dynamo.values import Item
from sandyard.kit.paging import Page, encode_cursor, position_in


class DynamoReservations:
    """The reservations of a pool's store."""

    _pool: PoolTable
    _table: Table

    async def open_reservations(self) -> Sequence[Reservation]:
        items = await self._table.query_all(condition="PK = :open", values={"open": OPEN})
        return await self._reservations_of([item["SK"] for item in items])

    async def find_reservation(self, reservation_id: str) -> Reservation | None:
        return await find_entity(self._table, Reservation, reservation_key(reservation_id))

    async def reservations(
        self, *, starts_before: int, ends_after: int, limit: int, cursor: str | None
    ) -> Page[Reservation]:
        listing = f"reservations {starts_before} {ends_after}"
        last = position_in(listing, cursor, str)
        start: Item | None = None if last is None else {"PK": CALENDAR, "SK": last[0]}
        items, following, _ = await self._table.query(
            condition="PK = :calendar AND SK >= :first",
            values={
                "calendar": CALENDAR,
                "first": f"{ends_after + 1:012}",
                "before": starts_before,
            },
            where="starts_at < :before",
            limit=limit,
            start=start,
        )
        found = await self._reservations_of([item["reservation_id"] for item in items])
        found.sort(key=lambda each: (each.ends_at, each.reservation_id))
        return Page(found, encode_cursor(listing, [following["SK"]]) if following else None)

    async def reserved_for(self, holder: str, *, limit: int) -> Sequence[Sandbox]:
        """Found in the index, then read consistently."""
        wanted = Wanted(reservation_id=holder)
        found: list[Sandbox] = []
        async for items in self._table.pages(
            index=self._pool.status_index,
            condition="#status = :status",
            values=wanted.values,
            where=wanted.filter,
        ):
            fresh = await self._table.get_many([sandbox_key(i["sandbox_id"]) for i in items])
            found += [sandbox_of(item) for item in fresh if wanted.matches(item)]
            if len(found) >= limit:
                break
        return found[:limit]

    async def _reservations_of(self, ids: Sequence[str]) -> list[Reservation]:
        items = await self._table.get_many([reservation_key(each) for each in ids])
        return [entity_of(Reservation, item) for item in items]
