"""The pool as a value that only knows compare-and-set, and the Broker's use cases over it."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

from prometheus_client import CollectorRegistry

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.errors import NoSandboxesAvailableError
from sandyard.broker.pool.jobs import Expiry, Holds
from sandyard.broker.pool.leases import Leases
from sandyard.broker.pool.model import (
    FREE,
    Claim,
    Claimed,
    HeldLease,
    Lease,
    Listed,
    Sandbox,
    Status,
    Tombstone,
    decide_claim,
    decide_superseded,
)
from sandyard.broker.pool.names import KnownNames
from sandyard.broker.pool.ports import PoolStore, SandboxFilter
from sandyard.broker.pool.service import Broker
from sandyard.broker.pool.sync import Sync
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.broker.queue.model import Ticket
from sandyard.broker.queue.service import Queue
from sandyard.broker.reservations.cache import ReservationCache
from sandyard.broker.reservations.model import Calendar, Reservation
from sandyard.broker.reservations.service import Reservations
from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.paging import Page
from tests.interleavings.explorer import Port, Program, Request

HOUR = 3600
TICKET_TTL_SEC = 60
Entry = Sandbox | Tombstone | Ticket | Reservation | Calendar


@dataclass(frozen=True, slots=True)
class PoolWorld:
    """The entries by kind and id, and what the provider has."""

    entries: frozenset[Entry] = frozenset()
    listed: tuple[Listed, ...] = ()
    compares: bool = True
    """Switched off only to show that the search finds what then goes wrong."""
    log: tuple[Event, ...] = field(default=(), compare=False)
    """In the order of writing, on the way by which this world was first reached."""

    def of(self, kind: type[Any]) -> list[Any]:
        found = [each for each in self.entries if isinstance(each, kind)]
        return sorted(found, key=lambda each: str(_key(each)))

    @property
    def rows(self) -> list[Sandbox]:
        return self.of(Sandbox)

    @property
    def tickets(self) -> list[Ticket]:
        return sorted(self.of(Ticket), key=lambda each: each.queue_order)

    def perform(self, request: Request, now: int) -> tuple["PoolWorld", Any]:
        del now
        do: Callable[..., tuple[PoolWorld, Any]] = getattr(self, f"do_{request.name}")
        return do(*request.arguments)

    def do_begin(self) -> tuple["PoolWorld", None]:
        """A process may begin at any time, and reads the clock then."""
        return self, None

    def do_find(self, *key: str) -> tuple["PoolWorld", Any]:
        """By its whole key."""
        return self, next((each for each in self.entries if _key(each) == key), None)

    def do_lease(self, track_id: str, key: str) -> tuple["PoolWorld", Any]:
        return self, next((row for row in self.rows if row.is_leased_to(track_id, key)), None)

    def do_list(self, kind: type[Any]) -> tuple["PoolWorld", Any]:
        return self, tuple(self.of(kind))

    def do_provider(self) -> tuple["PoolWorld", Any]:
        return self, self.listed

    def do_set(self, *transitions: Transition[Any]) -> tuple["PoolWorld", bool]:
        """All or nothing. Two leases of one key can't be written."""
        entries = {_key(each): each for each in self.entries}
        for each in transitions:
            key = _key(each.before or each.after)
            there = entries.get(key)
            before = each.before and each.before.sequence
            if self.compares and (there and there.sequence) != before:
                return self, False
        for each in transitions:
            entries.pop(_key(each.before or each.after), None)
            if each.after is not None:
                entries[_key(each.after)] = each.after
        keys = [row.allocated_to_track + row.idempotency_key for row in _leased(entries.values())]
        if self.compares and len(keys) != len(set(keys)):
            return self, False
        events = tuple(event for each in transitions for event in each.events)
        return replace(self, entries=frozenset(entries.values()), log=self.log + events), True

    def do_renew(self, ids: tuple[str, ...], asked_at: int) -> tuple["PoolWorld", None]:
        entries = frozenset(
            replace(each, asked_at=asked_at)
            if isinstance(each, Ticket) and each.ticket_id in ids
            else each
            for each in self.entries
        )
        return replace(self, entries=entries), None


def _key(entry: Any) -> tuple[str, ...]:
    match entry:
        case Sandbox() | Tombstone():
            return "sandbox", entry.sandbox_id
        case Ticket():
            return "ticket", entry.track_id, entry.key
        case Reservation():
            return "reservation", entry.reservation_id
        case _:
            return ("calendar",)


def _leased(entries: Any) -> Iterator[Any]:
    return (
        each for each in entries if isinstance(each, Sandbox) and each.status is Status.ALLOCATED
    )


class SteppedPool:
    """The port to the pool: every read and every compare-and-set is one step."""

    def __init__(self, port: Port) -> None:
        self._port = port

    async def claim(self, claim: Claim) -> Claimed | None:
        """As on DynamoDB: the lease of the key and a candidate, compared and set; with none left,
        the lease once more."""
        while True:
            old = await self._port.call("lease", *claim.lease_key)
            if old is not None and old.lease.is_live(claim.now):
                return Claimed(old.lease, is_new=False)
            free = self._free_for(claim, await self._port.call("list", Sandbox))
            if not free:
                old = await self._port.call("lease", *claim.lease_key)
                is_live = old is not None and old.lease.is_live(claim.now)
                return Claimed(old.lease, is_new=False) if is_live else None
            leased = decide_claim(free[0], claim)
            ended = old and decide_superseded(old, claim)
            if await self.apply_together(*filter(None, [ended, leased])):
                return Claimed(leased.result.lease, is_new=True)

    def _free_for(self, claim: Claim, rows: Sequence[Sandbox]) -> list[Sandbox]:
        named = [row for row in rows if row.name.startswith(claim.name_prefix)]
        own = [row for row in named if row.reserved_for in claim.reservations]
        return own + [row for row in named if row.status is Status.AVAILABLE]

    async def find(self, sandbox_id: str) -> Any:
        return await self._port.call("find", "sandbox", sandbox_id)

    async def find_lease(self, track_id: str, key: str) -> Lease | None:
        row: Sandbox | None = await self._port.call("lease", track_id, key)
        return None if row is None else row.lease

    async def apply(self, transitions: Sequence[Transition[Any]]) -> list[bool]:
        return [await self.apply_together(each) for each in transitions]

    async def apply_together(self, *transitions: Transition[Any]) -> bool:
        return bool(await self._port.call("set", *transitions))

    async def confirm_listed(self, sandbox_ids: Sequence[str], *, now: int) -> None:
        """Data, not state."""

    async def renew_tombstones(self, sandbox_ids: Sequence[str], *, kept_until: int) -> None:
        """Data, not state."""

    async def drop_tombstones(self, *, now: int) -> None:
        """Seven days do not pass here."""

    async def tombstoned(self, sandbox_ids: Sequence[str]) -> set[str]:
        if not sandbox_ids:
            return set()
        gone = await self._port.call("list", Tombstone)
        return {each.sandbox_id for each in gone} & set(sandbox_ids)

    async def everything(self) -> AsyncIterator[Sequence[Sandbox]]:
        yield await self._port.call("list", Sandbox)

    async def overdue(self, *, ended_by: int) -> AsyncIterator[Sequence[Sandbox]]:
        rows = await self._port.call("list", Sandbox)
        yield [row for row in _leased(rows) if row.lease.expires_at <= ended_by]

    async def page(self, where: SandboxFilter, *, limit: int, cursor: str | None) -> Page[Sandbox]:
        del cursor
        rows = await self._port.call("list", Sandbox)
        return Page([row for row in rows if where.matches(row)][:limit], None)

    async def reserved_for(self, holder: str, *, limit: int) -> Sequence[Sandbox]:
        del limit
        rows = await self._port.call("list", Sandbox)
        return [row for row in rows if row.reserved_for == holder]

    async def find_ticket(self, track_id: str, key: str) -> Ticket | None:
        return cast("Ticket | None", await self._port.call("find", "ticket", track_id, key))

    async def tickets(self, *, limit: int, after: Any) -> Sequence[Ticket]:
        del limit
        found = sorted(await self._port.call("list", Ticket), key=lambda each: each.queue_order)
        return [each for each in found if after is None or each.queue_order > after]

    async def count_waiting(self, *, before: Ticket | None = None) -> int:
        del before
        return 0

    async def renew_tickets(self, tickets: Sequence[Ticket], *, asked_at: int) -> None:
        await self._port.call("renew", tuple(each.ticket_id for each in tickets), asked_at)

    async def open_reservations(self) -> Sequence[Reservation]:
        found = await self._port.call("list", Reservation)
        return [each for each in found if each.ended_at is None]

    async def find_reservation(self, reservation_id: str) -> Any:
        return await self._port.call("find", "reservation", reservation_id)

    async def find_single(self, kind: type[Any]) -> Any:
        return await self._port.call("find", kind.__name__.lower())


class _Provider:
    def __init__(self, port: Port) -> None:
        self._port = port

    async def list_sandboxes(self) -> Sequence[Listed]:
        return cast("Sequence[Listed]", await self._port.call("provider"))


class _Known(ReservationCache):
    def __init__(self, store: PoolStore, known: Sequence[Reservation]) -> None:
        super().__init__(store)
        self._known = known


@cache
def _metrics() -> BrokerMetrics:
    return BrokerMetrics(CollectorRegistry())


class Services:
    """The Broker's use cases of one process. Its list of reservations is as old as the process:
    `known` is what it read at its start."""

    def __init__(self, port: Port, known: Sequence[Reservation] = ()) -> None:
        store = cast("PoolStore", SteppedPool(port))
        clock, metrics = port, _metrics()
        assigner = SandboxAssigner(store, clock=clock, ticket_ttl_sec=TICKET_TTL_SEC)
        reservations = _Known(store, known)
        names = KnownNames(store, clock=clock)
        self.queue = Queue(
            store,
            clock=clock,
            ticket_ttl_sec=TICKET_TTL_SEC,
            assigner=assigner,
            reservations=reservations,
        )
        self.broker = Broker(
            store,
            clock=clock,
            metrics=metrics,
            waiting=self.queue,
            reservations=reservations,
            assigner=assigner,
            names=names,
            lease_max_sec=24 * HOUR,
            hold_sec=HOUR,
        )
        self.leases = Leases(
            store,
            clock=clock,
            metrics=metrics,
            lease_max_sec=24 * HOUR,
            max_replacements=5,
            hold_sec=HOUR,
            assigner=assigner,
            reservations=reservations,
            names=names,
        )
        self.expiry = Expiry(store, clock=clock, metrics=metrics, grace_sec=0)
        self.holds = Holds(store, clock=clock, metrics=metrics, assigner=assigner)
        self.reservations = Reservations(store, clock=clock, assigner=assigner, cache=reservations)
        self.sync = Sync(
            store,
            cast("Any", _Provider(port)),
            clock=clock,
            metrics=metrics,
            lab_duration_hours=1,
            assigner=assigner,
        )


Call = Callable[[Services], Coroutine[Any, Any, Any]]


def program(call: Call, known: Sequence[Reservation] = ()) -> Program:
    """Of a process that makes this one call."""

    async def run(port: Port) -> Any:
        await port.call("begin")
        return await call(Services(port, known))

    return run


def claims(track: str, key: str | None = None, **options: Any) -> Call:
    """`Broker.allocate`: its sandbox and whether the lease is new; None if there was none."""

    async def run(services: Services) -> Any:
        try:
            made = await services.broker.allocate(track_id=track, idempotency_key=key, **options)
        except NoSandboxesAvailableError:
            return None
        return made.lease

    return run


def free_of(world: PoolWorld) -> list[Sandbox]:
    return [row for row in world.rows if row.status in FREE]


def held_leases(world: PoolWorld) -> list[HeldLease]:
    return [
        HeldLease(row.allocated_to_track or "", row.idempotency_key or "", row.lease)
        for row in _leased(world.entries)
    ]
