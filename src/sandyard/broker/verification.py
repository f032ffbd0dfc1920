"""Checks a whole pool against its invariants, also under traffic."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from sandyard.broker.log_rules import PoolRules
from sandyard.broker.pool.model import (
    DELETING,
    UNUSED,
    HeldLease,
    Lease,
    Sandbox,
    Status,
    Tombstone,
)
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.provider.model import Autoscaler, ProviderBinding
from sandyard.broker.queue.ports import find_ticket_by_id, ticket_pages
from sandyard.broker.reservations.model import Calendar
from sandyard.kit.changes.events import State
from sandyard.kit.changes.transitions import Entity, subject_of
from sandyard.kit.changes.verification import Problem, seen_repeatedly, verify_gone, verify_history
from sandyard.kit.paging import all_pages

SINGLES: Sequence[type[Entity]] = (Calendar, Autoscaler, ProviderBinding)
"""The entities of which a pool has one."""
_PAGE = 100
_FAR = 10**11
"""A time after every reservation."""


@dataclass(slots=True)
class VerificationReport:
    rows: int = 0
    leases: int = 0
    tombstones: int = 0
    problems: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class _Seen:
    """The entries read in one pass, as far as they must be compared."""

    allocated: dict[str, Sandbox] = field(default_factory=dict)
    leases: dict[tuple[str, str], HeldLease] = field(default_factory=dict)
    leased: dict[str, tuple[str, str]] = field(default_factory=dict)
    tombstones: set[str] = field(default_factory=set)
    suspects: set[str] = field(default_factory=set)


Others = Callable[[], Awaitable[Sequence[Entity]]]
"""All other entities with events; there are few."""


async def _no_others() -> Sequence[Entity]:
    return ()


async def verify(
    store: PoolStore,
    *,
    ticket_ttl_sec: float = 0,
    progress: Callable[[int], None] = lambda _: None,
    others: Others = _no_others,
) -> VerificationReport:
    """Read everything, read suspicious entries again, compare all with their folded events, and
    check these by the rules of pools; the order of the queue if the time to live of its tickets is
    given.

    The pool changes while it is read, so a lease and its row may be read at different instants.
    Only what is wrong in several consecutive reads is a problem.
    """
    report = VerificationReport()
    seen = _Seen()
    async for entries in store.audit():
        for entry in entries:
            _record(entry, seen, report)
        progress(report.rows)
    _compare(seen)
    for sandbox_id in sorted(seen.suspects):
        leased_to = seen.leased.get(sandbox_id)
        message = await seen_repeatedly(partial(_problem_of, store, sandbox_id, leased_to))
        if message:
            report.problems.append(Problem(sandbox_id, message))
    find = partial(_find, store, others)
    few = _few(store, others)
    rules = PoolRules(ticket_ttl_sec)
    for pages in (_rows(store), ticket_pages(store), _reservations(store), few):
        found = await verify_history(pages, find, store.events, rules=rules.add)
        report.problems += found.problems
    gone = await verify_gone(find, store.events, may_be_gone=_is_tombstone, rules=rules.add)
    report.problems += [*gone.problems, *rules.across()]
    return report


async def _find(store: PoolStore, others: Others, subject: str) -> Entity | None:
    async for few in _few(store, others):
        for each in few:
            if subject_of(each) == subject:
                return each
    found = await store.find(subject) or await store.find_reservation(subject)
    return found or await find_ticket_by_id(store, subject)


def _is_tombstone(state: State) -> bool:
    """A tombstone expires without an event."""
    return "deleted_at" in state


async def _rows(store: PoolStore) -> AsyncIterator[Sequence[Sandbox | Tombstone]]:
    async for entries in store.audit():
        yield [each for each in entries if isinstance(each, Sandbox | Tombstone)]


async def _few(store: PoolStore, others: Others) -> AsyncIterator[Sequence[Entity]]:
    """The entities of which a pool has one, and the others."""
    singles: list[Entity | None] = [await store.find_single(each) for each in SINGLES]
    yield [*filter(None, singles), *await others()]


def _reservations(store: PoolStore) -> AsyncIterator[Sequence[Entity]]:
    return all_pages(store.reservations, starts_before=_FAR, ends_after=0, limit=_PAGE)


def _record(
    entry: Sandbox | HeldLease | Tombstone, seen: _Seen, report: VerificationReport
) -> None:
    match entry:
        case Sandbox():
            report.rows += 1
            if entry.status is Status.ALLOCATED:
                seen.allocated[entry.sandbox_id] = entry
            elif _attributes(entry):
                seen.suspects.add(entry.sandbox_id)
            if entry.sandbox_id in seen.tombstones:
                seen.suspects.add(entry.sandbox_id)
        case HeldLease():
            report.leases += 1
            sandbox_id = entry.lease.sandbox_id
            seen.leases[entry.track_id, entry.key] = entry
            if sandbox_id in seen.leased:
                seen.suspects.add(sandbox_id)
            seen.leased[sandbox_id] = entry.track_id, entry.key
        case Tombstone():
            report.tombstones += 1
            seen.tombstones.add(entry.sandbox_id)


def _compare(seen: _Seen) -> None:
    for sandbox_id, row in seen.allocated.items():
        held = seen.leases.get((row.allocated_to_track or "", row.idempotency_key or ""))
        if held is None or _disagree(row, held.lease) or _attributes(row):
            seen.suspects.add(sandbox_id)
    seen.suspects |= {each for each in seen.leased if each not in seen.allocated}
    seen.suspects |= seen.tombstones & seen.allocated.keys()


async def _problem_of(
    store: PoolStore, sandbox_id: str, leased_to: tuple[str, str] | None
) -> str | None:
    """What is wrong with this sandbox now; None if nothing."""
    row = await store.find(sandbox_id)
    if leased_to is not None:
        lease = await store.find_lease(*leased_to)
        row = await store.find(sandbox_id) if lease else row
        owner = _owner(row)
        if lease is not None and lease.sandbox_id == sandbox_id and owner != leased_to:
            return f"is leased to {leased_to}, but its row says {owner or 'free'}"
    if not isinstance(row, Sandbox):
        return None
    if row.status is Status.ALLOCATED:
        lease = await store.find_lease(row.allocated_to_track or "", row.idempotency_key or "")
        if lease is None:
            return "is allocated without a lease"
        if lease.sandbox_id != sandbox_id:
            return f"is allocated to a track and key whose lease names {lease.sandbox_id}"
        if _disagree(row, lease):
            return "and its lease disagree on its window"
    if await store.tombstoned([sandbox_id]):
        return "is in the pool and has a tombstone"
    return _attributes(row)


def _disagree(row: Sandbox, lease: Lease) -> bool:
    said = (lease.sandbox_id, lease.allocated_at, lease.expires_at)
    return said != (row.sandbox_id, row.allocated_at, row.expires_at)


def _owner(row: Sandbox | Tombstone | None) -> tuple[str, str] | None:
    if not isinstance(row, Sandbox) or row.status is not Status.ALLOCATED:
        return None
    return row.allocated_to_track or "", row.idempotency_key or ""


def _attributes(row: Sandbox) -> str | None:
    free = row.status in UNUSED
    if free and (row.allocated_at or row.allocated_to_track):
        return f"is {row.status} and has an owner"
    if row.status is Status.ALLOCATED and not (row.allocated_at and row.allocated_to_track):
        return "is allocated to nobody"
    if (row.status is Status.RESERVED) != (row.reserved_for is not None):
        return f"is {row.status} and reserved for {row.reserved_for or 'nobody'}"
    if row.status is Status.STALE and row.stale_reason is None:
        return "is stale for no reason"
    if row.status in DELETING and row.deletion_requested_at is None:
        return f"is {row.status} without the time of the request"
    return None
