"""A check of a whole pool against what must always hold, while traffic flows."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from sandyard.broker.model import HeldLease, Lease, Sandbox, Status, Tombstone
from sandyard.broker.ports import PoolStore
from sandyard.kit.events import State
from sandyard.kit.transitions import Entity
from sandyard.kit.verification import Problem, verify_gone, verify_history

_LOOKS = 3
_BETWEEN_LOOKS_SEC = 0.2


@dataclass(slots=True)
class VerificationReport:
    rows: int = 0
    leases: int = 0
    tombstones: int = 0
    problems: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class _Seen:
    """What one pass over the pool met, as far as it has to be compared."""

    allocated: dict[str, Sandbox] = field(default_factory=dict)
    leases: dict[tuple[str, str], HeldLease] = field(default_factory=dict)
    leased: dict[str, tuple[str, str]] = field(default_factory=dict)
    tombstones: set[str] = field(default_factory=set)
    suspects: set[str] = field(default_factory=set)


async def verify(
    store: PoolStore, *, progress: Callable[[int], None] = lambda _: None
) -> VerificationReport:
    """Read everything, then again what looked wrong, and compare it with what its events fold into.

    The pool changes while it is read, so a lease and its row may be seen at different instants.
    Only what is wrong at several looks in a row is a problem.
    """
    report = VerificationReport()
    seen = _Seen()
    async for entries in store.audit():
        for entry in entries:
            _meet(entry, seen, report)
        progress(report.rows)
    _compare(seen)
    for sandbox_id in sorted(seen.suspects):
        message = await _confirm(store, sandbox_id, seen.leased.get(sandbox_id))
        if message:
            report.problems.append(Problem(sandbox_id, message))
    history = await verify_history(_entities(store), store.find, store.events)
    history.add(await verify_gone(store.find, store.events, may_be_gone=_is_tombstone))
    report.problems += history.problems
    return report


def _is_tombstone(state: State) -> bool:
    """A tombstone goes without an event when its time is over."""
    return "deleted_at" in state


async def _entities(store: PoolStore) -> AsyncIterator[Sequence[Entity]]:
    async for entries in store.audit():
        yield [each for each in entries if isinstance(each, Sandbox | Tombstone)]


def _meet(entry: Sandbox | HeldLease | Tombstone, seen: _Seen, report: VerificationReport) -> None:
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


async def _confirm(
    store: PoolStore, sandbox_id: str, leased_to: tuple[str, str] | None
) -> str | None:
    message = None
    for look in range(_LOOKS):
        if look:
            await asyncio.sleep(_BETWEEN_LOOKS_SEC)
        message = await _look(store, sandbox_id, leased_to)
        if message is None:
            return None
    return message


async def _look(store: PoolStore, sandbox_id: str, leased_to: tuple[str, str] | None) -> str | None:
    """What is wrong with this sandbox now."""
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
    """What a row of this state has or lacks wrongly."""
    free = row.status in (Status.AVAILABLE, Status.STALE)
    if free and (row.allocated_at or row.allocated_to_track):
        return f"is {row.status} and has an owner"
    if row.status is Status.ALLOCATED and not (row.allocated_at and row.allocated_to_track):
        return "is allocated to nobody"
    if row.status is Status.STALE and row.stale_reason is None:
        return "is stale for no reason"
    deleting = row.status in (Status.PENDING_DELETION, Status.DELETION_FAILED)
    if deleting and row.deletion_requested_at is None:
        return f"is {row.status} without the time of the request"
    return None
