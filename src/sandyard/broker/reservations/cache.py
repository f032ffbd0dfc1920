"""The open reservations, without a read for each claim."""

import asyncio
from collections.abc import Sequence

from sandyard.broker.pool.model import Claim
from sandyard.broker.reservations.model import Reservation, in_turn
from sandyard.broker.reservations.ports import ReservationStore
from sandyard.kit.errors import UnavailableError

_REFRESH_AFTER_SEC = 1.0
_MAX_AGE_SEC = 2.0


class ReservationCache:
    """The open reservations as of at most two seconds ago. Reserved sandboxes are marked in the
    pool itself, so an outdated list leases none of them to others; and before a claim fails
    because nothing is free, the list is read again (`with_newest`)."""

    def __init__(self, store: ReservationStore) -> None:
        self._store = store
        self._known: Sequence[Reservation] | None = None
        self._read_at = 0.0
        self._reading: asyncio.Task[None] | None = None

    async def of(self, claim: Claim) -> tuple[str, ...]:
        """The reservations that the claim may lease from, ordered by their start."""
        age_sec = asyncio.get_running_loop().time() - self._read_at
        if self._known is None or age_sec >= _REFRESH_AFTER_SEC:
            self._reading = self._reading or asyncio.create_task(self._refresh())
            if self._known is None or age_sec >= _MAX_AGE_SEC:
                await asyncio.shield(self._reading)
        return _admitting(claim, self._known) if self._known else ()

    def forget(self) -> None:
        """The next claim reads the list: this process has just changed it."""
        self._known, self._reading = None, None
        self._read_at = asyncio.get_running_loop().time()

    async def with_newest(self, claim: Claim) -> Claim | None:
        """The claim with reservations that were made since it was created; None if there are
        none."""
        await self._read()
        newest = _admitting(claim, self._known or ())
        return None if set(newest) <= set(claim.reservations) else claim.within(newest)

    async def _refresh(self) -> None:
        try:
            await self._read()
        except UnavailableError:
            return  # the next call tries again, and its claim reports the outage
        finally:
            self._reading = None

    async def _read(self) -> None:
        began = asyncio.get_running_loop().time()
        found = in_turn(await self._store.open_reservations())
        if began >= self._read_at:  # else a read that began later has finished first
            self._known, self._read_at = found, began


def _admitting(claim: Claim, known: Sequence[Reservation]) -> tuple[str, ...]:
    return tuple(
        each.reservation_id
        for each in known
        if each.is_active(claim.now) and each.admits(claim.track_id, claim.client)
    )
