"""The port to the store of tickets."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from sandyard.broker.queue.model import QueueOrder, Ticket

_PAGE = 100


class TicketStore(Protocol):
    """A part of `PoolStore`, with its promises: tickets change by `apply_together`."""

    async def find_ticket(self, track_id: str, key: str) -> Ticket | None:
        """The ticket of this track and key, as last committed."""

    async def find_tickets(self, keys: Sequence[tuple[str, str]]) -> Sequence[Ticket]:
        """The existing tickets of these tracks and keys, as last committed, in no order."""

    async def tickets(self, *, limit: int, after: QueueOrder | None) -> Sequence[Ticket]:
        """Tickets in queue order, after `after`, as last committed."""

    async def count_waiting(self, *, before: Ticket | None = None) -> int:
        """How many tickets wait for a sandbox: all, or those ahead of `before`."""

    async def renew_tickets(self, tickets: Sequence[Ticket], *, asked_at: int) -> None:
        """Record that their holders still wait; removed tickets stay removed."""


async def find_ticket_by_id(store: TicketStore, ticket_id: str) -> Ticket | None:
    """Reads the queue up to it."""
    async for tickets in ticket_pages(store):
        for ticket in tickets:
            if ticket.ticket_id == ticket_id:
                return ticket
    return None


async def ticket_pages(store: TicketStore) -> AsyncIterator[Sequence[Ticket]]:
    last: QueueOrder | None = None
    while tickets := await store.tickets(limit=_PAGE, after=last):
        yield tickets
        last = tickets[-1].queue_order
        if len(tickets) < _PAGE:
            return
