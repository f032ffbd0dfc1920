"""Calls that wait for their ticket: one poll serves all of a process."""

import asyncio
import logging
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field

from sandyard.broker.queue.model import Ticket
from sandyard.broker.queue.ports import TicketStore
from sandyard.kit.clock import Clock
from sandyard.kit.errors import UnavailableError

logger = logging.getLogger(__name__)

_POLL_SEC = 0.25


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
