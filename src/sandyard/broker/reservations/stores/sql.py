"""Reservations in SQL."""

from collections.abc import Sequence

import sqlalchemy as sa

from sandyard.broker.pool.model import Sandbox
from sandyard.broker.pool.stores.sql_rows import SqlReads, sandbox_of
from sandyard.broker.reservations.model import Reservation
from sandyard.broker.stores.tables import RESERVATIONS, reservations, sandboxes
from sandyard.kit.paging import Page
from sandyard.kit.sql.entities import find_entities, find_entity, page_of_entities

_MOST_OPEN = 10_000
_column = reservations.c


class SqlReservations(SqlReads):
    """The reservations of a pool's store."""

    async def open_reservations(self) -> Sequence[Reservation]:
        is_open = _column.ended_at.is_(None)
        return await find_entities(self._database, RESERVATIONS, is_open, limit=_MOST_OPEN)

    async def find_reservation(self, reservation_id: str) -> Reservation | None:
        return await find_entity(
            self._database, RESERVATIONS, _column.reservation_id == reservation_id
        )

    async def reservations(
        self, *, starts_before: int, ends_after: int, limit: int, cursor: str | None
    ) -> Page[Reservation]:
        return await page_of_entities(
            self._database,
            RESERVATIONS,
            _column.ends_at > ends_after,
            _column.starts_at < starts_before,
            order=(_column.ends_at, _column.reservation_id),
            descending=False,
            listing=f"reservations {starts_before} {ends_after}",
            limit=limit,
            cursor=cursor,
        )

    async def reserved_for(self, holder: str, *, limit: int) -> Sequence[Sandbox]:
        statement = sa.select(sandboxes).where(sandboxes.c.reserved_for == holder).limit(limit)
        return [sandbox_of(row) for row in await self._rows(statement)]
