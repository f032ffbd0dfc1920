"""The port to the store of reservations."""

from collections.abc import Sequence
from typing import Protocol

from sandyard.broker.reservations.model import Reservation
from sandyard.kit.paging import Page


class ReservationStore(Protocol):
    """A part of `PoolStore`, with its promises: reservations change by `apply_together`."""

    async def open_reservations(self) -> Sequence[Reservation]:
        """Reservations that have not ended, as last committed, in no order."""

    async def find_reservation(self, reservation_id: str) -> Reservation | None:
        """The reservation, even after its end, as last committed."""

    async def reservations(
        self, *, starts_before: int, ends_after: int, limit: int, cursor: str | None
    ) -> Page[Reservation]:
        """Reservations that overlap this time, ordered by their ends. A page before the last may be
        short or empty."""
