"""The port to the store of the pool, and which of its rows a listing has."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from sandyard.broker.pool import model
from sandyard.broker.queue.ports import TicketStore
from sandyard.broker.reservations.ports import ReservationStore
from sandyard.kit.changes.events import EventLog
from sandyard.kit.changes.transitions import E, Transition
from sandyard.kit.paging import Page, all_pages

_PAGE = 100


class Sort(StrEnum):
    """The order of a listing."""

    NAME = "name"
    NAME_DESCENDING = "-name"
    EXPIRES_AT = "expires_at"
    """Leased ones by the end of their lease, then the others by name."""
    EXPIRES_AT_DESCENDING = "-expires_at"

    @property
    def is_descending(self) -> bool:
        return self.startswith("-")


@dataclass(frozen=True, slots=True)
class SandboxFilter:
    status: model.Status | None = None
    track: str | None = None
    """The current or last track."""
    name_prefix: str = ""
    search: str = ""
    """Prefix of an id, a track or a name."""
    sort: Sort | None = None
    """None: any order."""

    def matches(self, row: model.Sandbox) -> bool:
        """Matches whole ids and tracks only, as a search by key does."""
        return (
            self.status in (None, row.status)
            and self.track in (None, row.allocated_to_track)
            and row.name.startswith(self.name_prefix)
            and (row.name.startswith(self.search) or self.is_key_of(row))
        )

    def is_key_of(self, row: model.Sandbox) -> bool:
        return self.search in (row.sandbox_id, row.allocated_to_track)


@dataclass(frozen=True, slots=True)
class PoolCounts:
    by_status: Mapping[model.Status, int]
    """Every state, including zeros."""
    counted_at: int | None
    """None: now."""

    @property
    def total(self) -> int:
        return sum(self.by_status.values())


class PoolStore(TicketStore, ReservationStore, Protocol):
    """The pool, on an engine that many processes may share.

    On every engine, at every instant: a row is `allocated` exactly while its lease exists, no
    sandbox has two leases, and no (track, key) has two. What a method has returned is durable.
    If the engine is unavailable, every method raises UnavailableError and has changed all or
    nothing; an outage is never reported as an empty pool or as an unknown sandbox.
    """

    @property
    def events(self) -> EventLog:
        """The events of the pool's sandboxes."""

    async def start(self) -> None:
        """Prepare for claims. For a process that serves many; succeeds even without the engine."""

    async def claim(self, claim: model.Claim) -> model.Claimed | None:
        """Lease a free sandbox to (track, key), or find their existing lease.

        - A lease that is live at `claim.now` is returned unchanged, with `is_new` False; also when
          the pool is empty.
        - A lease past its end is ended in the write that creates the new one: its sandbox goes to
          `pending_deletion`.
        - Otherwise one sandbox whose name begins with `claim.name_prefix` becomes `allocated` to
          this claim alone: one reserved for one of `claim.reservations`, or else an `available`
          one. Sandboxes reserved for others are never considered.
        - The changes and events are those of `model.decide_claim` and `decide_superseded`.
        - None only if there was no such sandbox: neither contention nor a lock held by another
          claim counts as an empty pool.
        """

    async def find(self, sandbox_id: str) -> model.Sandbox | model.Tombstone | None:
        """The row or its tombstone, as last committed."""

    async def find_lease(self, track_id: str, key: str) -> model.Lease | None:
        """The lease of this track and key, live or past its end, as last committed."""

    async def apply(self, transitions: Sequence[model.PoolTransition]) -> Sequence[bool]:
        """Apply each transition whose row still has `before`'s sequence; returns which were
        applied.

        - The events are written in the same transaction.
        - Without `before` the row is inserted, unless its id has a row or a tombstone.
        - A row that becomes a Tombstone is removed in the write that adds the tombstone.
        - Leaving `allocated` ends the lease in the same write.
        - A transition that lost changes nothing and does not block the others.
        """

    async def apply_together(self, *transitions: Transition[Any]) -> bool:
        """Apply all transitions with their events in one write; or nothing, and return False, if an
        entity has changed since its transition was decided, or a new one already exists. They may
        concern sandboxes and any other entity of the pool. One may end the lease that another
        begins, for the same track and key."""

    async def confirm_listed(self, sandbox_ids: Sequence[str], *, now: int) -> None:
        """Record that the provider still lists these `available` or `stale` rows."""

    async def renew_tombstones(self, sandbox_ids: Sequence[str], *, kept_until: int) -> None:
        """Extend these tombstones until then."""

    async def drop_tombstones(self, *, now: int) -> None:
        """Remove expired tombstones."""

    async def tombstoned(self, sandbox_ids: Sequence[str]) -> set[str]:
        """The ids that have a tombstone."""

    def everything(self) -> AsyncIterator[Sequence[model.Sandbox]]:
        """All rows, in pages. Only for `sync`."""

    def audit(self) -> AsyncIterator[Sequence[model.Sandbox | model.HeldLease | model.Tombstone]]:
        """All stored entries, as last written, in pages. Only for `verification`."""

    async def page(
        self, where: SandboxFilter, *, limit: int, cursor: str | None
    ) -> Page[model.Sandbox]:
        """Rows that match, in the order of `sort`, except for a search; a store that has no such
        index sorts each page. For `search` a store may match only whole ids and tracks, but never
        reads all rows for them. A page before the last may be short or empty."""

    def overdue(
        self, *, ended_by: int, size: int = _PAGE
    ) -> AsyncIterator[Sequence[model.Sandbox]]:
        """Allocated rows that end at or before `ended_by`, in pages; each once, also while the
        reader changes them."""

    def deletable(self, *, now: int, size: int = _PAGE) -> AsyncIterator[Sequence[model.Sandbox]]:
        """Rows in `pending_deletion` whose next attempt is due, in pages; each once, also while the
        reader changes them."""

    async def counts(self) -> PoolCounts:
        """How many rows are in each state, now or up to 15 seconds ago."""

    async def reserved_for(self, holder: str, *, limit: int) -> Sequence[model.Sandbox]:
        """Some of the rows reserved for this ticket or reservation, as last written."""

    async def find_single(self, kind: type[E]) -> E | None:
        """The entity of which a pool has one, its Autoscaler, Calendar or ProviderBinding, as last
        committed; None before the first change."""

    async def check(self) -> None:
        """Return if the engine responds and has the schema that this code needs."""

    async def close(self) -> None: ...


def pages_of(
    store: PoolStore, where: SandboxFilter, *, size: int = _PAGE
) -> AsyncIterator[Sequence[model.Sandbox]]:
    return all_pages(store.page, where, limit=size)
