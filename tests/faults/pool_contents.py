"""All that a pool holds at one moment, as any engine gives it."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from sandyard.broker.pool.model import HeldLease, Sandbox, Tombstone
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.queue.model import QueueOrder, Ticket
from sandyard.broker.reservations.model import Reservation
from sandyard.kit.changes.events import EventQuery, LoggedEvent

_PAGE = 100
_FAR = 10**11
"""After the end of every reservation."""

Entry = Sandbox | Tombstone | HeldLease | Reservation | Ticket


@dataclass(slots=True)
class Stock:
    rows: dict[str, Sandbox] = field(default_factory=dict)
    gone: dict[str, Tombstone] = field(default_factory=dict)
    leases: dict[tuple[str | None, str | None], str] = field(default_factory=dict)
    """By track and key, the sandbox."""
    reservations: dict[str, Reservation] = field(default_factory=dict)
    tickets: dict[str, Ticket] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "Stock":
        stock = cls()
        for entry in entries:
            stock.add(entry)
        return stock

    def add(self, entry: Entry) -> None:
        match entry:
            case Sandbox():
                self.rows[entry.sandbox_id] = entry
            case Tombstone():
                self.gone[entry.sandbox_id] = entry
            case HeldLease():
                self.leases[entry.track_id, entry.key] = entry.lease.sandbox_id
            case Reservation():
                self.reservations[entry.reservation_id] = entry
            case Ticket():
                self.tickets[entry.ticket_id] = entry


async def stock_of(store: PoolStore) -> Stock:
    """Reads all of it; only a check of everything may."""
    stock = Stock()
    async for entries in store.audit():
        for entry in entries:
            stock.add(entry)
    async for ticket in _tickets(store):
        stock.add(ticket)
    async for reservation in _reservations(store):
        stock.add(reservation)
    return stock


async def _tickets(store: PoolStore) -> AsyncIterator[Ticket]:
    last: QueueOrder | None = None
    while tickets := await store.tickets(limit=_PAGE, after=last):
        last = tickets[-1].queue_order
        for each in tickets:
            yield each


async def _reservations(store: PoolStore) -> AsyncIterator[Reservation]:
    cursor: str | None = None
    while True:
        page = await store.reservations(
            starts_before=_FAR, ends_after=0, limit=_PAGE, cursor=cursor
        )
        for each in page.items:
            yield each
        cursor = page.next_cursor
        if cursor is None:
            return


async def events_of(store: PoolStore) -> list[LoggedEvent]:
    """The whole log."""
    found: list[LoggedEvent] = []
    cursor: str | None = None
    while True:
        page = await store.events.page(EventQuery(), limit=_PAGE, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found
