"""Reservations: made and cancelled by operators, filled and ended by the job `reservations`."""

import hashlib
import logging
from dataclasses import dataclass

from sandyard.broker.pool.errors import RowBusyError
from sandyard.broker.pool.model import OPERATOR, Status, decide_unreserved
from sandyard.broker.pool.ports import PoolStore, SandboxFilter, pages_of
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.broker.reservations import errors, model
from sandyard.broker.reservations.cache import ReservationCache
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, ConflictRetries
from sandyard.kit.clock import Clock
from sandyard.kit.ids import EventIds
from sandyard.kit.paging import Page
from sandyard.kit.wired import wired

logger = logging.getLogger(__name__)

_PAGE = 100
_USABLE = (Status.AVAILABLE, Status.RESERVED, Status.ALLOCATED)


@dataclass(slots=True)
class ReservationReport:
    filled: int = 0
    """Reservations that got the last of their sandboxes."""
    short: int = 0
    """Those that changed and still lack some."""
    ended: int = 0


@wired
class Reservations:
    """`pool_max_total` is the maximum size of the pool; None: it does not grow."""

    store: PoolStore
    clock: Clock
    assigner: SandboxAssigner
    cache: ReservationCache
    pool_max_total: int | None = None

    def __post_init__(self) -> None:
        self._make_id = EventIds()

    async def reserve(
        self, booking: model.Booking, *, key: str | None = None, by: str = OPERATOR
    ) -> tuple[model.Reservation, bool]:
        """The reservation, filled as far as possible if it has started, and whether it is new.

        A repeat with the same key returns the reservation of the first call. Raises
        OverbookedError, InvalidReservationError and ReservationExistsError.
        """
        async for _ in ConflictRetries():
            cause = Cause.by(by, self.clock)
            reservation_id = self._id(key, cause)
            if key and (earlier := await self.store.find_reservation(reservation_id)):
                if not earlier.is_of(booking):
                    raise errors.ReservationExistsError
                return earlier, False
            calendar = await self.store.find_single(model.Calendar)
            made = model.decide_reservation(
                booking,
                reservation_id,
                others=await self.store.open_reservations(),
                capacity=await self._capacity(),
                cause=cause,
            )
            booked = model.decide_booked(calendar, made.result, cause)
            if await self.store.apply_together(made, booked):
                self.cache.forget()
                return await self._fill(made.result), True
        raise RowBusyError

    def _id(self, key: str | None, cause: Cause) -> str:
        if key is None:
            return f"res-{self._make_id(cause.at_ms)}"
        return f"res-{hashlib.sha256(key.encode()).hexdigest()[:26]}"

    async def _capacity(self) -> int:
        """How many leasable sandboxes the pool has, or may have."""
        counts = (await self.store.counts()).by_status
        return max(sum(counts[each] for each in _USABLE), self.pool_max_total or 0)

    async def get(self, reservation_id: str) -> model.Reservation:
        found = await self.store.find_reservation(reservation_id)
        if found is None:
            raise errors.ReservationNotFoundError
        return found

    async def calendar(
        self, *, from_at: int, to_at: int, limit: int, cursor: str | None
    ) -> Page[model.Reservation]:
        """Reservations that overlap this time, ordered by their ends. Raises
        InvalidReservationError."""
        if to_at < from_at:
            raise errors.InvalidReservationError(details={"field": "to"})
        return await self.store.reservations(
            starts_before=to_at, ends_after=from_at, limit=limit, cursor=cursor
        )

    async def cancel(self, reservation_id: str, *, by: str = OPERATOR) -> model.Reservation:
        """End it now; sandboxes that are not leased go back. One that is over does not change."""
        async for _ in ConflictRetries():
            found = await self.get(reservation_id)
            cancelled = model.decide_cancelled(found, Cause.by(by, self.clock))
            if cancelled is None:
                return found
            if await self.store.apply_together(cancelled):
                return await self._end(cancelled.result) or cancelled.result
        raise RowBusyError

    async def maintain(self) -> ReservationReport:
        """Fill active reservations, in the order of their start, and end those that are over."""
        report = ReservationReport()
        for each in model.in_turn(await self.store.open_reservations()):
            if each.is_over(self._now()):
                report.ended += await self._end(each) is not None
            elif each.is_active(self._now()):
                after = await self._fill(each)
                if after.sequence != each.sequence:
                    report.filled += not after.missing
                    report.short += bool(after.missing)
        return report

    async def _fill(self, reservation: model.Reservation) -> model.Reservation:
        if not reservation.needs_more(self._now()):
            return reservation
        where = SandboxFilter(Status.AVAILABLE, name_prefix=reservation.name_prefix)
        async for rows in pages_of(self.store, where):
            filled = await self.assigner.fill(reservation, rows)
            if filled is None:
                return reservation
            reservation = filled
            if not reservation.needs_more(self._now()):
                return reservation
        return await self._report_short(reservation)

    async def _report_short(self, reservation: model.Reservation) -> model.Reservation:
        short = model.decide_short(reservation, Cause.by(actor("job", "reservations"), self.clock))
        if short is None or not await self.store.apply_together(short):
            return reservation
        logger.warning(
            "a reservation lacks sandboxes; enlarge the pool",
            extra={
                "action": "reservations",
                "reservation_id": reservation.reservation_id,
                "missing": reservation.missing,
            },
        )
        return short.result

    async def _end(self, reservation: model.Reservation) -> model.Reservation | None:
        """Unreserve its sandboxes, then record its end; None if another process is changing
        them."""
        cause = Cause.by(actor("job", "reservations"), self.clock, reason=model.OVER)
        async for _ in ConflictRetries():
            while rows := await self.store.reserved_for(reservation.reservation_id, limit=_PAGE):
                if not any(await self.assigner.apply([decide_unreserved(r, cause) for r in rows])):
                    return None
            ended = model.decide_ended(
                reservation, Cause.by(actor("job", "reservations"), self.clock)
            )
            if ended is None or await self.store.apply_together(ended):
                return ended.result if ended else None
            fresh = await self.store.find_reservation(reservation.reservation_id)
            if fresh is None or fresh.ended_at is not None:
                return fresh
            reservation = fresh
        return None

    def _now(self) -> int:
        return int(self.clock.now())
