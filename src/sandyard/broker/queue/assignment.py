"""Changes of sandboxes: those that become free are assigned to reservations and tickets first."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandyard.broker.pool.errors import RowBusyError
from sandyard.broker.pool.model import Sandbox, Tombstone, decide_reserved, is_sandbox_id
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.queue.model import Ticket, becomes_free, decide_ready, first_who_wants
from sandyard.broker.queue.ports import ticket_pages
from sandyard.broker.reservations.model import (
    Reservation,
    decide_counted,
    decide_kept,
    decide_lost,
    in_turn,
    loses_reserved,
)
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import (
    Cause,
    ConflictRetries,
    Transition,
    followed_by,
    subject_of,
)
from sandyard.kit.clock import Clock

_ROUNDS = 3
_MAX_AGE_MS = 1000
"""The queue is read again after this time, because a newcomer may precede the tickets read."""
TOGETHER = 20
"""How many sandboxes are reserved for a reservation in one write; DynamoDB limits its size."""


Decide = Callable[[Sandbox | Tombstone | None, Cause], Transition[Sandbox] | None]
"""The change of the row; None for no change."""


@dataclass(slots=True)
class _Demand:
    """The demand for freed sandboxes: waiting tickets, and reservations that lack sandboxes."""

    waiting: list[Ticket]
    reservations: list[Reservation]
    cause: Cause
    """The cause of all decisions made from this demand. It predates the read of the queue, so that
    the read includes everyone who was waiting at its time."""
    planned: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By reservation, the indexes of the freed sandboxes that are going to be reserved for it."""

    def reservation_for(self, row: Sandbox) -> Reservation | None:
        return next((each for each in self.reservations if self._lacks(each, row)), None)

    def _lacks(self, reservation: Reservation, row: Sandbox) -> bool:
        planned = len(self.planned[reservation.reservation_id])
        return reservation.wants(row, self.cause.at_ms // 1000) and reservation.missing > planned

    def ticket_for(self, row: Sandbox, within: Reservation | None) -> Ticket | None:
        """The next ticket; if the sandbox is for a reservation, the next of its tracks."""
        return first_who_wants(
            row,
            (
                each
                for each in self.waiting
                if not within or within.admits(each.track_id, each.client)
            ),
        )

    def replace(self, old: Reservation, new: Reservation | None) -> None:
        place = self.reservations.index(old)
        self.reservations[place : place + 1] = [] if new is None else [new]


class SandboxAssigner:
    """Skips tickets that were not renewed for `ticket_ttl_sec`: the job `queue` drops them, and
    nothing is reserved for them until then."""

    def __init__(self, store: PoolStore, *, clock: Clock, ticket_ttl_sec: float) -> None:
        self._store = store
        self._clock = clock
        self._ticket_ttl_sec = ticket_ttl_sec

    async def find(self, sandbox_id: str) -> Sandbox | Tombstone | None:
        """The row or tombstone with this id; None, without a read, for an invalid id."""
        return await self._store.find(sandbox_id) if is_sandbox_id(sandbox_id) else None

    async def change(
        self, sandbox_id: str, by: str, decide: Decide
    ) -> tuple[Sandbox | Tombstone, bool]:
        """Read, decide and apply; retries on conflicts, each time with the current time. Returns
        the row and whether it changed. Raises RowBusyError."""
        async for _ in ConflictRetries():
            cause = Cause.by(by, self._clock)  # read first: a row that is read later is as new
            row = await self.find(sandbox_id)
            transition = decide(row, cause)
            if transition is None:
                assert row is not None  # noqa: S101 - an unknown id is an error in every decision
                return row, False
            if (await self.apply([transition]))[0]:
                # A freed sandbox may have been reserved in the same write.
                freed = becomes_free(transition)
                row = await self._store.find(sandbox_id) if freed else transition.result
                return row or transition.result, True
        raise RowBusyError

    async def change_lease(
        self, sandbox_id: str, by: str, decide: Decide
    ) -> tuple[Sandbox | Tombstone, bool]:
        """Like `change`, for the sandbox that has the lease now: the decision changes nothing of
        one that was replaced, and is then made for the one that has replaced it."""
        row, is_changed = await self.change(sandbox_id, by, decide)
        while row.replaced_by is not None:
            row, is_changed = await self.change(row.replaced_by, by, decide)
        return row, is_changed

    async def apply(self, transitions: Sequence[Transition[Sandbox]]) -> Sequence[bool]:
        """Like the store's `apply`, but a sandbox that would become available is reserved in the
        same write for a reservation that lacks one, or for the first ticket that wants it. A
        reservation that loses a sandbox is updated in the same write."""
        outcomes = dict.fromkeys(await self._reserve_freed(transitions), True)
        for index, each in enumerate(transitions):
            if loses_reserved(each) and not becomes_free(each):
                outcomes[index] = await self._lose(each)
        rest = [index for index in range(len(transitions)) if index not in outcomes]
        applied = await self._store.apply([transitions[index] for index in rest])
        outcomes |= zip(rest, applied, strict=True)
        done = [transitions[index] for index in rest if outcomes[index]]
        await self.assign_available([each.result for each in done if becomes_free(each)])
        return [outcomes[index] for index in range(len(transitions))]

    async def _reserve_freed(self, transitions: Sequence[Transition[Sandbox]]) -> set[int]:
        """Reserve freed sandboxes; returns the reserved ones. The queue is read again until nobody
        in it wants the rest: tickets arrive meanwhile, and a reservation may no longer lack any."""
        reserved: set[int] = set()
        freed = {index: each for index, each in enumerate(transitions) if becomes_free(each)}
        for _ in range(len(freed) + _ROUNDS):
            left = {index: each for index, each in freed.items() if index not in reserved}
            if not left:
                break
            demand = await self._demand()
            newly = await self._reserve_by(demand, left)
            if not newly and not any(demand.planned.values()):
                break
            reserved |= newly
        return reserved

    async def _reserve_by(
        self, demand: _Demand, freed: Mapping[int, Transition[Sandbox]]
    ) -> set[int]:
        """Reserve each for a ticket or, together with others, for a reservation."""
        reserved: set[int] = set()
        for index, each in freed.items():
            await self._keep_fresh(demand)
            if await self._reserve_for_ticket(each, demand):
                reserved.add(index)
            elif (reservation := demand.reservation_for(each.result)) is not None:
                demand.planned[reservation.reservation_id].append(index)
        for reservation in demand.reservations:
            planned = demand.planned[reservation.reservation_id]
            _, filled = await self._fill(reservation, {at: freed[at] for at in planned})
            reserved |= filled
        return reserved

    async def free(self, freed: Transition[Sandbox], *others: Transition[Any]) -> bool:
        """Like `apply` for one sandbox, together with other changes: all or nothing. A sandbox that
        counts for an active reservation goes back to it."""
        demand = await self._demand()
        gone = {subject_of(each.before) for each in others if each.before and not each.after}
        demand.waiting = [each for each in demand.waiting if each.ticket_id not in gone]
        own = await self._active_reservation(freed)
        if await self._reserve_for_ticket(freed, demand, *others, own=own):
            return True
        if own is not None:
            holder = own.reservation_id
            row = decide_reserved(freed.result, holder, self._cause(), reservation_id=holder)
            return await self._store.apply_together(followed_by(freed, row), *others)
        if (wanting := demand.reservation_for(freed.result)) is not None:
            [row], counted = decide_kept(wanting, [freed.result], self._cause())
            return await self._store.apply_together(followed_by(freed, row), counted, *others)
        is_free = await self._store.apply_together(freed, *others)
        if is_free:
            await self.assign_available([freed.result])
        return is_free

    async def reserve_for(self, ticket: Ticket, free: Sandbox, cause: Cause) -> bool:
        ready = decide_ready(ticket, free, cause, reservation_id=free.reservation_id)
        return await self._store.apply_together(*ready)

    async def assign_available(self, free: Sequence[Sandbox]) -> None:
        """Offer available sandboxes to tickets that were queued meanwhile. Whoever frees a sandbox
        reads the queue before and after; whoever queues checks for available sandboxes afterwards.
        So neither misses the other."""
        if not free:
            return
        demand = await self._demand()
        for row in free:
            await self._keep_fresh(demand)
            while (ticket := first_who_wants(row, demand.waiting)) is not None:
                if await self.reserve_for(ticket, row, demand.cause):
                    demand.waiting.remove(ticket)
                    break
                if not await self._is_changed(ticket, demand):
                    break  # the sandbox was taken

    async def still_waits(self, ticket: Ticket) -> bool:
        found = await self._store.find_ticket(*ticket.lease_key)
        return found is not None and found.sequence == ticket.sequence

    async def fill(self, reservation: Reservation, free: Sequence[Sandbox]) -> Reservation | None:
        """Reserve these free sandboxes for the reservation, as many as it lacks; others may take
        some first. Returns the updated reservation, None if it is gone."""
        unchanged = {index: Transition(row, row, ()) for index, row in enumerate(free)}
        filled, _ = await self._fill(reservation, unchanged)
        return filled

    async def _reserve_for_ticket(
        self,
        freed: Transition[Sandbox],
        demand: _Demand,
        *others: Transition[Any],
        own: Reservation | None = None,
    ) -> bool:
        """Reserve it for the first ticket that wants it, of the reservation `own` that it already
        counts for, if any; False if none does, or the sandbox has changed."""
        while True:
            reservation = demand.reservation_for(freed.result) if own is None else None
            within = own or reservation
            ticket = demand.ticket_for(freed.result, within)
            if ticket is None:
                return False
            counts_for = None if within is None else within.reservation_id
            row, ready = decide_ready(ticket, freed.result, demand.cause, reservation_id=counts_for)
            together: list[Transition[Any]] = [followed_by(freed, row), ready, *others]
            if reservation is not None:
                counted = decide_counted(reservation, 1, demand.cause)
                together.append(counted)
            if await self._store.apply_together(*together):
                demand.waiting.remove(ticket)
                if reservation is not None:
                    demand.replace(reservation, counted.result)
                return True
            if not (
                await self._is_changed(ticket, demand)
                or await self._is_renewed(reservation, demand)
            ):
                return False

    async def _is_changed(self, ticket: Ticket, demand: _Demand) -> bool:
        """Update the ticket in the demand, or remove it if it no longer waits; False if it is
        unchanged."""
        fresh = await self._store.find_ticket(*ticket.lease_key)
        if fresh is not None and fresh.sequence == ticket.sequence:
            return False
        waits = fresh is not None and fresh.ticket_id == ticket.ticket_id and not fresh.sandbox_id
        place = demand.waiting.index(ticket)
        demand.waiting[place : place + 1] = [fresh] if fresh is not None and waits else []
        return True

    async def _is_renewed(self, reservation: Reservation | None, demand: _Demand) -> bool:
        """Update the reservation in the demand; False if it is unchanged."""
        if reservation is None:
            return False
        fresh = await self._store.find_reservation(reservation.reservation_id)
        if fresh is not None and fresh.sequence == reservation.sequence:
            return False
        demand.replace(reservation, fresh)
        return True

    async def _fill(
        self, reservation: Reservation, freed: Mapping[int, Transition[Sandbox]]
    ) -> tuple[Reservation | None, set[int]]:
        """Reserve freed sandboxes for the reservation, as many as it lacks. Returns the updated
        reservation, None if it is gone, and the reserved ones."""
        reserved: set[int] = set()
        current: Reservation | None = reservation
        indexes = list(freed)
        for start in range(0, len(indexes), TOGETHER):
            if current is None or not current.needs_more(self._now()):
                break
            chunk = indexes[start : start + min(TOGETHER, current.missing)]
            current = await self._fill_chunk(current, {at: freed[at] for at in chunk}, reserved)
        return current, reserved

    async def _fill_chunk(
        self,
        reservation: Reservation,
        chunk: Mapping[int, Transition[Sandbox]],
        reserved: set[int],
    ) -> Reservation | None:
        """All in one write or, if something has changed, one by one; adds to `reserved`."""
        cause = self._cause()
        rows, counted = decide_kept(reservation, [each.result for each in chunk.values()], cause)
        together = map(followed_by, chunk.values(), rows)
        if await self._store.apply_together(*together, counted):
            reserved.update(chunk)
            return counted.result
        for index, each in chunk.items():
            fresh = await self._store.find_reservation(reservation.reservation_id)
            if fresh is None or not fresh.wants(each.result, self._now()):
                return fresh
            [row], counted = decide_kept(fresh, [each.result], cause)
            if await self._store.apply_together(followed_by(each, row), counted):
                reserved.add(index)
        return await self._store.find_reservation(reservation.reservation_id)

    async def _lose(self, lost: Transition[Sandbox]) -> bool:
        """Apply it, and count one sandbox less for the reservation."""
        before = lost.before
        assert before is not None  # noqa: S101 - it was kept for a reservation
        async for _ in ConflictRetries():
            found = await self._store.find_reservation(before.reservation_id or "")
            counted = [] if found is None else [decide_lost(found, self._cause())]
            if await self._store.apply_together(lost, *counted):
                return True
            row = await self._store.find(before.sandbox_id)
            if not isinstance(row, Sandbox) or row.sequence != before.sequence:
                return False
        return False

    async def _active_reservation(self, freed: Transition[Sandbox]) -> Reservation | None:
        before = freed.before
        if before is None or before.reservation_id is None:
            return None
        found = await self._store.find_reservation(before.reservation_id)
        return found if found is not None and found.is_active(self._now()) else None

    async def _demand(self) -> _Demand:
        cause, now = self._cause(), self._now()
        wanting = [each for each in await self._store.open_reservations() if each.needs_more(now)]
        waiting = [
            each
            async for tickets in ticket_pages(self._store)
            for each in tickets
            if self._waits(each)
        ]
        return _Demand(waiting, in_turn(wanting), cause)

    async def _keep_fresh(self, demand: _Demand) -> None:
        if self._clock.now() * 1000 > demand.cause.at_ms + _MAX_AGE_MS:
            fresh = await self._demand()
            demand.waiting, demand.reservations = fresh.waiting, fresh.reservations
            demand.cause = fresh.cause

    def _waits(self, ticket: Ticket) -> bool:
        is_abandoned = ticket.is_abandoned(ttl_sec=self._ticket_ttl_sec, now=self._now())
        return ticket.sandbox_id is None and not is_abandoned

    def _now(self) -> int:
        return int(self._clock.now())

    def _cause(self) -> Cause:
        return Cause.by(actor("system"), self._clock)
