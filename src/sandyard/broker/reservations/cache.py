"""Claims with the reservations of their track, without reading them each time."""

import asyncio
from collections.abc import Sequence

from sandyard.broker.pool.model import Claim, Claimed
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.reservations.model import Reservation, in_turn
from sandyard.kit.changes.frozen import quick_replace
from sandyard.kit.errors import UnavailableError

_FRESH_SEC = 1.0


class ReservedClaims:
    """The open reservations as of about a second ago. Reserved sandboxes are marked in the pool
    itself, so an outdated list leases none of them to others; and before a claim fails because
    nothing is free, the list is read again."""

    def __init__(self, store: PoolStore) -> None:
        self._store = store
        self._known: Sequence[Reservation] | None = None
        self._read_at = 0.0
        self._reading: asyncio.Task[None] | None = None

    async def claim(self, claim: Claim) -> Claimed | None:
        """Like the store's `claim`, but sandboxes of the track's reservations come first."""
        if self._known is None:
            await self._read()
        own = self._own(claim)
        claimed = await self._store.claim(_of_reservations(claim, own) if own else claim)
        if claimed is not None:
            return claimed
        await self._read()
        fresh = _belonging(claim, self._known or ())
        if set(fresh) <= set(own):
            return None
        return await self._store.claim(_of_reservations(claim, fresh))

    async def of(self, claim: Claim) -> tuple[str, ...]:
        """The reservations that the claim may lease from, ordered by their start."""
        if self._known is None:
            await self._read()
        return self._own(claim)

    def _own(self, claim: Claim) -> tuple[str, ...]:
        if self._reading is None and self._loop_time() >= self._read_at + _FRESH_SEC:
            self._reading = asyncio.create_task(self._refresh())
        return _belonging(claim, self._known) if self._known else ()

    async def _refresh(self) -> None:
        try:
            await self._read()
        except UnavailableError:
            return  # the next call tries again, and its claim reports the outage
        finally:
            self._reading = None

    async def _read(self) -> None:
        began = self._loop_time()
        found = in_turn(await self._store.open_reservations())
        if began >= self._read_at:  # else a read that began later has finished first
            self._known, self._read_at = found, began

    def _loop_time(self) -> float:
        return asyncio.get_running_loop().time()


def _of_reservations(claim: Claim, own: tuple[str, ...]) -> Claim:
    return quick_replace(claim, {"reservations": own})


def _belonging(claim: Claim, known: Sequence[Reservation]) -> tuple[str, ...]:
    return tuple(
        each.reservation_id
        for each in known
        if each.is_active(claim.now) and each.admits(claim.track_id, claim.client)
    )
