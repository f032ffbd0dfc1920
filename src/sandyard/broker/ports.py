"""What the Broker needs from the outside, as promises."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sandyard.broker.autoscaling_model import Autoscaler
from sandyard.broker.model import (
    Claim,
    Claimed,
    HeldLease,
    Lease,
    Listed,
    PoolTransition,
    Sandbox,
    Status,
    Tombstone,
)
from sandyard.broker.provider_model import ProviderBinding
from sandyard.broker.reservation_model import Calendar, Reservation
from sandyard.broker.ticket_model import QueueOrder, Ticket
from sandyard.kit.events import EventLog
from sandyard.kit.paging import Page
from sandyard.kit.transitions import Transition


@dataclass(frozen=True, slots=True)
class PoolCounts:
    by_status: Mapping[Status, int]
    """Of every state, also where it is 0."""
    counted_at: int | None
    """None: just now."""

    @property
    def total(self) -> int:
        return sum(self.by_status.values())


class PoolStore(Protocol):
    """The pool, on an engine that many processes may share.

    On every engine, at every instant: a row is `allocated` exactly while its lease exists, no
    sandbox has two leases, and no (track, key) has two. What a method has returned is durable.
    If the engine is unavailable, every method raises UnavailableError and has changed all or
    nothing; an outage is never reported as an empty pool or as an unknown sandbox.
    """

    @property
    def events(self) -> EventLog:
        """What happened to the pool's sandboxes."""
        ...

    async def start(self) -> None:
        """Get ready for claims; for a process that answers many, and works without the engine."""
        ...

    async def claim(self, claim: Claim) -> Claimed | None:
        """Lease a free sandbox to (track, key), or find the lease that they have.

        - A lease that is live at `claim.now` is returned as it is, with `is_new` False; also when
          the pool is empty.
        - A lease that is past its end is ended in the write that makes the new one: its sandbox
          goes to `pending_deletion`.
        - Otherwise one sandbox whose name begins with `claim.name_prefix` becomes `allocated` to
          this claim alone: one that is kept for one of `claim.reservations`, or else one that is
          `available`. What is kept for anybody else is never looked at.
        - What changes is what `model.decide_claim` and `decide_superseded` say, with their events.
        - None only if there was no such sandbox: neither contention nor a lock held by another
          claim counts as an empty pool.
        """
        ...

    async def find(self, sandbox_id: str) -> Sandbox | Tombstone | None:
        """The row or what is left of it, as last committed."""
        ...

    async def find_lease(self, track_id: str, key: str) -> Lease | None:
        """The lease of this track and key, live or past its end, as last committed."""
        ...

    async def apply(self, transitions: Sequence[PoolTransition]) -> Sequence[bool]:
        """Apply each transition whose row still has `before`'s sequence; say which were applied.

        - The events are written with it or not at all.
        - Without `before` the row is inserted, unless there is one or a tombstone of its id.
        - A row that becomes a Tombstone is removed in the write that leaves the tombstone.
        - Leaving `allocated` ends the lease in the same write.
        - A transition that lost changes nothing, and holds up none of the others.
        """
        ...

    async def apply_together(self, *transitions: Transition[Any]) -> bool:
        """All of them with their events, in one write, or nothing and False: if one of the
        entities is not what its transition was decided from, or one that is made is there. They
        may be of sandboxes and of anything else that the pool keeps. A lease that one of them ends
        may be the one that another begins, for the same track and key."""
        ...

    async def confirm_listed(self, sandbox_ids: Sequence[str], *, now: int) -> None:
        """Note that the provider still lists these `available` or `stale` rows."""
        ...

    async def renew_tombstones(self, sandbox_ids: Sequence[str], *, kept_until: int) -> None:
        """Keep these tombstones until then."""
        ...

    async def drop_tombstones(self, *, now: int) -> None:
        """Forget the tombstones whose time is over."""
        ...

    async def tombstoned(self, sandbox_ids: Sequence[str]) -> set[str]:
        """Those of the ids that have a tombstone."""
        ...

    def everything(self) -> AsyncIterator[Sequence[Sandbox]]:
        """All rows, in pages. Only for `sync`."""
        ...

    def audit(self) -> AsyncIterator[Sequence[Sandbox | HeldLease | Tombstone]]:
        """All that is stored, as last written, in pages. Only for `verification`."""
        ...

    async def page(
        self,
        *,
        status: Status | None,
        limit: int,
        cursor: str | None,
        track: str | None = None,
        name_prefix: str = "",
        search: str = "",
    ) -> Page[Sandbox]:
        """Rows in this state, of this track (that has it or had it last) and with names that
        begin so. `search` is how an id, a track or a name begins; a store may find whole ids and
        tracks alone, but never reads all rows for them. A page may be short, also empty, before
        the last one."""
        ...

    async def overdue(
        self, *, ended_by: int, limit: int, after: Sandbox | None
    ) -> Sequence[Sandbox]:
        """Allocated rows that end at `ended_by` or before, in a fixed order, past `after`."""
        ...

    async def deletable(self, *, now: int, limit: int, after: Sandbox | None) -> Sequence[Sandbox]:
        """Rows in `pending_deletion` whose next attempt is due, in a fixed order, past `after`."""
        ...

    async def counts(self) -> PoolCounts:
        """How many rows are in each state, now or a quarter of a minute ago."""
        ...

    async def find_ticket(self, track_id: str, key: str) -> Ticket | None:
        """The ticket of this track and key, as last committed."""
        ...

    async def find_tickets(self, keys: Sequence[tuple[str, str]]) -> Sequence[Ticket]:
        """The existing tickets of these tracks and keys, as last committed, in no order."""
        ...

    async def tickets(self, *, limit: int, after: QueueOrder | None) -> Sequence[Ticket]:
        """Tickets in queue order, past `after`, as last committed."""
        ...

    async def count_waiting(self, *, before: Ticket | None = None) -> int:
        """How many tickets wait for a sandbox: all, or those before this one."""
        ...

    async def renew_tickets(self, tickets: Sequence[Ticket], *, asked_at: int) -> None:
        """Note that their holders still ask; those that are gone stay so."""
        ...

    async def open_reservations(self) -> Sequence[Reservation]:
        """Those that have not ended, as last committed, in no order."""
        ...

    async def find_reservation(self, reservation_id: str) -> Reservation | None:
        """The reservation, also after its end, as last committed."""
        ...

    async def reservations(
        self, *, starts_before: int, ends_after: int, limit: int, cursor: str | None
    ) -> Page[Reservation]:
        """Those whose time overlaps this one, in the order of their ends. A page may be short,
        also empty, before the last one."""
        ...

    async def reserved_for(self, holder: str, *, limit: int) -> Sequence[Sandbox]:
        """Some of the rows that are kept for this ticket or reservation, as last written."""
        ...

    async def find_calendar(self) -> Calendar | None:
        """What all reservations change, as last committed; None before the first."""
        ...

    async def find_autoscaler(self) -> Autoscaler | None:
        """What is known of the pool's size, as last committed; None before it was looked at."""
        ...

    async def find_provider(self) -> ProviderBinding | None:
        """The provider that the pool belongs to, as last committed."""
        ...

    async def check(self) -> None:
        """Return if the engine answers and holds the schema that this code needs."""
        ...

    async def close(self) -> None: ...


class Probed(Protocol):
    """What a probe knows of a sandbox."""

    @property
    def sandbox_id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def external_id(self) -> str: ...


class Prober(Protocol):
    """Asks a sandbox whether it is fit for use."""

    async def check(self, sandbox: Probed) -> str | None:
        """None if it is; else what is wrong, in a few words. Never raises for what it met."""
        ...

    async def close(self) -> None: ...


class Provider(Protocol):
    """The cloud that owns the sandboxes.

    Raises ProviderUnavailableError when it does not answer as it should, and CircuitOpenError,
    without having asked, while it is being left alone.
    """

    async def list_sandboxes(self) -> Sequence[Listed]:
        """All of them, or an error: never a part of the list."""
        ...

    async def delete_sandbox(self, external_id: str) -> None:
        """Return when it is gone, by this call or before it."""
        ...

    @property
    def can_create(self) -> bool:
        """Whether its API has a call for that."""
        ...

    async def create_sandbox(self, name: str) -> Listed:
        """Create a sandbox with this name. After ProviderUnavailableError it may exist or not: the
        list shows it by its name. Raises CreationNotSupportedError if the provider has no such
        call."""
        ...

    async def has_sandbox(self, external_id: str) -> bool:
        """Whether it is there and in use, as the provider says now."""
        ...

    async def close(self) -> None: ...
