"""The queue for sandboxes: waiting in a call or with a ticket, first come first served. One poll
serves all calls of a process that wait."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil

from sandyard.broker.pool.errors import RowBusyError
from sandyard.broker.pool.model import (
    Claim,
    Claimed,
    Sandbox,
    Status,
    decide_superseded,
    decide_unreserved,
)
from sandyard.broker.pool.ports import PoolStore, SandboxFilter, pages_of
from sandyard.broker.queue import model
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.broker.queue.errors import TicketNotFoundError
from sandyard.broker.queue.model import Ticket
from sandyard.broker.queue.ports import TicketStore, find_ticket_by_id
from sandyard.broker.reservations.cache import ReservationCache
from sandyard.kit.changes.events import EventQuery, actor
from sandyard.kit.changes.transitions import Cause, ConflictRetries
from sandyard.kit.clock import Clock
from sandyard.kit.errors import UnavailableError
from sandyard.kit.ids import EventIds
from sandyard.kit.paging import Page, page_up_to, position_in
from sandyard.kit.wired import wired

logger = logging.getLogger(__name__)
_POLL_SEC = 0.25
_PAGE = 100
_QUEUE = "queue"
_RECENT_MS = 600_000
_COUNT_EVERY_MS = 5_000
MakeClaim = Callable[[], Claim]
"""Makes the caller's claim with the current time."""


@dataclass(eq=False, slots=True)
class Waiter:
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    is_gone: bool = False
    """Its connection is closed: nobody would receive the lease."""

    def leave(self) -> None:
        self.is_gone = True
        self.woken.set()


class TicketWatch:
    def __init__(self, store: TicketStore, *, clock: Clock, renew_sec: float) -> None:
        self._store = store
        self._clock = clock
        self._renew_sec = renew_sec
        self._waiters: dict[tuple[str, str], set[Waiter]] = defaultdict(set)
        self._polling: asyncio.Task[None] | None = None
        self.is_stopping = False

    async def until_served(self, ticket: Ticket, waiter: Waiter, *, within_sec: float) -> None:
        """Return when a sandbox is reserved for the ticket, the ticket is gone, the waiter has
        left, the time is over, or the process stops. The ticket is renewed meanwhile."""
        if self.is_stopping or waiter.is_gone:
            return
        waiter.woken.clear()
        self._waiters[ticket.lease_key].add(waiter)
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(waiter.woken.wait(), within_sec)
        finally:
            self._leave(ticket.lease_key, waiter)

    def stop(self) -> None:
        self.is_stopping = True
        self._wake(list(self._waiters))

    def _leave(self, key: tuple[str, str], waiter: Waiter) -> None:
        self._waiters[key].discard(waiter)
        if not self._waiters[key]:
            del self._waiters[key]

    def _wake(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            for waiter in self._waiters.get(key, ()):
                waiter.woken.set()

    async def _poll(self) -> None:
        try:
            renewed_at = asyncio.get_running_loop().time()
            while self._waiters:
                await asyncio.sleep(_POLL_SEC)
                try:
                    waiting = await self._wake_served()
                    if asyncio.get_running_loop().time() - renewed_at >= self._renew_sec:
                        renewed_at = asyncio.get_running_loop().time()
                        now = int(self._clock.now())
                        await self._store.renew_tickets(waiting, asked_at=now)
                except UnavailableError as error:
                    logger.warning(error.message, extra={"action": "queue", "reason": error.reason})
        finally:
            self._polling = None

    async def _wake_served(self) -> list[Ticket]:
        """Wake waiters whose ticket is served or gone; returns the other tickets."""
        keys = list(self._waiters)
        found = {each.lease_key: each for each in await self._store.find_tickets(keys)}
        waiting = {key: each for key, each in found.items() if each.sandbox_id is None}
        self._wake([key for key in keys if key not in waiting])
        return list(waiting.values())


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """A ticket's position: 1 is first, 0 is ready."""

    ticket: model.Ticket
    position: int
    estimated_wait_sec: int | None
    message: str | None = None
    """Says so if the pool has no such sandbox at all."""


@dataclass(slots=True)
class QueueReport:
    ready: int = 0
    waiting: int = 0
    dropped: int = 0


@wired
class Queue:
    store: PoolStore
    clock: Clock
    ticket_ttl_sec: float
    assigner: SandboxAssigner
    reservations: ReservationCache

    def __post_init__(self) -> None:
        self._watch = TicketWatch(self.store, clock=self.clock, renew_sec=self.ticket_ttl_sec / 3)
        self._make_id = EventIds()
        self._interval_sec: float | None = None
        self._counted_at_ms = 0

    async def wait(
        self,
        make_claim: MakeClaim,
        *,
        wait_sec: float,
        urgency: int = model.URGENCY,
        waiter: Waiter | None = None,
    ) -> Claimed | None:
        """The caller's lease once a sandbox is reserved for it. None if the time is over, or the
        caller has disconnected: then nothing is leased to it. The ticket stays: a repeat with the
        same track and key keeps its position."""
        waiter = waiter or Waiter()
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_sec
        while True:
            answer = await self.ask(make_claim, urgency=urgency)
            left = until - loop.time()
            if isinstance(answer, Claimed) or left <= 0 or self._watch.is_stopping:
                return answer if isinstance(answer, Claimed) else None
            await self._watch.until_served(answer, waiter, within_sec=left)
            if waiter.is_gone:
                return None

    async def ask(
        self, make_claim: MakeClaim, *, urgency: int = model.URGENCY
    ) -> Claimed | model.Ticket:
        """The lease, if the caller has one, or a sandbox is free or reserved for its ticket;
        otherwise its ticket, which is created if there is none."""
        async for _ in ConflictRetries():
            claim = make_claim()
            ticket = await self.store.find_ticket(*claim.lease_key)
            if ticket is None:
                claimed = await self._claim_free(claim)
                if claimed is not None:
                    return claimed
                ticket_id = self._make_id(claim.cause.at_ms)
                queued = model.decide_queued(claim, ticket_id=ticket_id, urgency=urgency)
                if await self.store.apply_together(queued):
                    await self._assign_freed_meanwhile(queued.result)
                    return queued.result
                continue
            lease = await self.store.find_lease(*claim.lease_key)
            if lease is not None and lease.is_live(claim.now):
                await self._drop(ticket, claim.cause.because(model.LEASED))
                return Claimed(lease, is_new=False)
            if ticket.sandbox_id is None:
                await self.store.renew_tickets([ticket], asked_at=claim.now)
                return ticket
            if lease is not None:
                await self._end(lease.sandbox_id, claim)
            if (claimed := await self._redeem(ticket, ticket.sandbox_id, claim)) is not None:
                return claimed
        raise RowBusyError

    async def claim_without_waiting(self, claim: Claim) -> Claimed | None:
        """For a claim that found nothing free: a lease from a reservation made since then, or of
        the sandbox reserved for its ticket. None if there is none; its ticket is renewed."""
        claimed = await self._claim_newest(claim)
        if claimed is not None or await self.store.find_ticket(*claim.lease_key) is None:
            return claimed
        answer = await self.ask(lambda: claim)
        return answer if isinstance(answer, Claimed) else None

    async def _claim_free(self, claim: Claim) -> Claimed | None:
        claim = claim.within(await self.reservations.of(claim))
        return await self.store.claim(claim) or await self._claim_newest(claim)

    async def _claim_newest(self, claim: Claim) -> Claimed | None:
        newest = await self.reservations.with_newest(claim)
        return None if newest is None else await self.store.claim(newest)

    async def _assign_freed_meanwhile(self, ticket: model.Ticket) -> None:
        """Offer sandboxes that became free while the ticket was written to the queue."""
        page = await self.store.page(_available_to(ticket), limit=1, cursor=None)
        await self.assigner.assign_available(page.items)

    async def _redeem(self, ticket: model.Ticket, sandbox_id: str, claim: Claim) -> Claimed | None:
        reserved = await self.store.find(sandbox_id)
        if not isinstance(reserved, Sandbox) or not ticket.has(reserved):
            await self._wait_again(ticket, claim.cause)
            return None
        leased, served = model.decide_served(ticket, reserved, claim)
        if not await self.store.apply_together(leased, served):
            return None
        return Claimed(leased.result.lease, is_new=True)

    async def _end(self, sandbox_id: str, claim: Claim) -> None:
        """End an expired lease of the same key."""
        row = await self.store.find(sandbox_id)
        ended = decide_superseded(row, claim) if isinstance(row, Sandbox) else None
        if ended is not None:
            await self.store.apply([ended])

    async def position_of(self, ticket: model.Ticket) -> QueuePosition:
        if ticket.sandbox_id is not None:
            return QueuePosition(ticket, 0, 0)
        position = 1 + await self.store.count_waiting(before=ticket)
        interval_sec = await self._serving_interval()
        return QueuePosition(
            ticket, position, None if interval_sec is None else ceil(position * interval_sec)
        )

    async def _serving_interval(self) -> float | None:
        now_ms = int(self.clock.now() * 1000)
        if now_ms >= self._counted_at_ms + _COUNT_EVERY_MS:
            query = EventQuery(kind="ticket.served", from_ms=now_ms - _RECENT_MS)
            page = await self.store.events.page(query, limit=_PAGE, cursor=None)
            times = [each.event.at_ms for each in page.items]
            self._interval_sec = (now_ms - min(times)) / 1000 / len(times) if times else None
            self._counted_at_ms = now_ms
        return self._interval_sec

    async def leave(self, *, track_id: str, key: str) -> bool:
        ticket = await self.store.find_ticket(track_id, key)
        if ticket is None:
            return False
        cause = Cause.by(actor("track", track_id), self.clock, reason=model.LEFT)
        return await self._drop(ticket, cause)

    async def page(self, *, limit: int, cursor: str | None) -> Page[model.Ticket]:
        """Tickets in the order in which they are served."""
        last = position_in(_QUEUE, cursor, int, str)
        after = None if last is None else (last[0], last[1])
        found = await self.store.tickets(limit=limit + 1, after=after)
        return page_up_to(limit, found, _QUEUE, lambda ticket: ticket.queue_order)

    async def move(self, ticket_id: str, urgency: int, *, by: str) -> model.Ticket:
        """Serve it earlier or later. Raises TicketNotFoundError, RowBusyError."""
        async for _ in ConflictRetries():
            cause, ticket = Cause.by(by, self.clock), await self._get(ticket_id)
            moved = model.decide_moved(ticket, urgency, cause)
            if moved is None or await self.store.apply_together(moved):
                return ticket if moved is None else moved.result
        raise RowBusyError

    async def drop(self, ticket_id: str, *, by: str) -> None:
        """Raises TicketNotFoundError, RowBusyError."""
        async for _ in ConflictRetries():
            cause = Cause.by(by, self.clock, reason=model.DROPPED)
            if await self._drop(await self._get(ticket_id), cause):
                return
        raise RowBusyError

    async def _get(self, ticket_id: str) -> model.Ticket:
        ticket = await find_ticket_by_id(self.store, ticket_id)
        if ticket is None:
            raise TicketNotFoundError
        return ticket

    async def dispatch(self) -> QueueReport:
        """Drop tickets that were not renewed, and reserve free sandboxes for the next ones. Freed
        sandboxes are reserved at once; this catches those that were missed."""
        report = QueueReport()
        now = int(self.clock.now())
        empty: set[str] = set()
        last: model.QueueOrder | None = None
        while True:
            read = Cause.by(actor("system"), self.clock)  # before the read
            tickets = await self.store.tickets(limit=_PAGE, after=last)
            if not tickets:
                break
            last = tickets[-1].queue_order
            for ticket in tickets:
                if ticket.is_abandoned(ttl_sec=self.ticket_ttl_sec, now=now):
                    dropped = Cause.by(actor("job", "queue"), self.clock, reason=model.ABANDONED)
                    report.dropped += await self._drop(ticket, dropped)
                elif ticket.sandbox_id is not None:
                    report.ready += await self._is_still_ready(ticket)
                else:
                    await self._find_one_for(ticket, empty, read)
        report.waiting = await self.store.count_waiting()
        return report

    async def _is_still_ready(self, ticket: model.Ticket) -> bool:
        reserved = await self.store.find(ticket.sandbox_id or "")
        if not ticket.has(reserved):
            await self._wait_again(ticket, Cause.by(actor("job", "queue"), self.clock))
        return ticket.has(reserved)

    async def _wait_again(self, ticket: model.Ticket, cause: Cause) -> None:
        waiting = model.decide_waiting(ticket, cause)
        if await self.store.apply_together(waiting):
            await self._assign_freed_meanwhile(waiting.result)

    async def _find_one_for(self, ticket: model.Ticket, empty: set[str], cause: Cause) -> None:
        """Reserve a sandbox of one of its track's reservations for the ticket, or offer free ones
        to the queue until the ticket has one; `empty` holds the prefixes with nothing free."""
        if await self._find_reserved_for(ticket, cause) or ticket.name_prefix in empty:
            return
        async for rows in pages_of(self.store, _available_to(ticket)):
            await self.assigner.assign_available(rows)
            if rows and not await self.assigner.still_waits(ticket):
                return
        empty.add(ticket.name_prefix)

    async def _find_reserved_for(self, ticket: model.Ticket, cause: Cause) -> bool:
        claim = Claim(ticket.track_id, ticket.key, int(self.clock.now()), client=ticket.client)
        for reservation_id in await self.reservations.of(claim):
            for row in await self.store.reserved_for(reservation_id, limit=_PAGE):
                if ticket.wants(row) and await self.assigner.reserve_for(ticket, row, cause):
                    return True
        return False

    async def _drop(self, ticket: model.Ticket, cause: Cause) -> bool:
        """Remove the ticket, and in the same write offer its reserved sandbox to the next."""
        dropped = model.decide_dropped(ticket, cause)
        reserved = await self.store.find(ticket.sandbox_id) if ticket.sandbox_id else None
        if isinstance(reserved, Sandbox) and ticket.has(reserved):
            return await self.assigner.free(decide_unreserved(reserved, cause), dropped)
        return await self.store.apply_together(dropped)

    def stop(self) -> None:
        """Return from all waiting calls now: the process is stopping."""
        self._watch.stop()


def _available_to(ticket: model.Ticket) -> SandboxFilter:
    return SandboxFilter(Status.AVAILABLE, name_prefix=ticket.name_prefix)
