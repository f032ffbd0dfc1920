"""What a pool in memory holds, and its only two writes: claims, and transitions by
compare-and-set."""

import time
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sandyard.broker.pool.model import (
    FREE,
    UNUSED,
    Claim,
    Claimed,
    PoolTransition,
    Sandbox,
    Status,
    Tombstone,
    decide_claim,
    decide_superseded,
)
from sandyard.broker.queue.model import Ticket
from sandyard.kit.changes.transitions import Transition, subject_of
from tests.fakes.pool.events import MemoryEvents

_Place = tuple[str, str]
"""A row's name and id, in whose order free ones are leased."""


@dataclass(slots=True)
class PoolState:
    """`now` and `lag_sec`: a change is in the listings only after that time."""

    now: Callable[[], float] = time.time
    lag_sec: float = 0
    rows: dict[str, Sandbox] = field(default_factory=dict)
    gone: dict[str, Tombstone] = field(default_factory=dict)
    leases: dict[tuple[str, str], str] = field(default_factory=dict)
    """By track and key, the sandbox."""
    others: dict[type, dict[str, Any]] = field(default_factory=dict)
    """All other entities, by kind and id."""
    tickets: dict[tuple[str, str], str] = field(default_factory=dict)
    events: MemoryEvents = field(default_factory=MemoryEvents)
    counts: Counter[Status] = field(default_factory=Counter)
    _free: dict[str | None, list[_Place]] = field(default_factory=dict)
    """By holder, None for the available ones; in order."""
    _before: dict[str, tuple[float, Sandbox | None]] = field(default_factory=dict)
    """What a row was before its last change, and when that was."""

    def claim(self, claim: Claim) -> Claimed | None:
        held = self.rows.get(self.leases.get(claim.lease_key, ""))
        if held is not None and held.lease.is_live(claim.now):
            return Claimed(held.lease, is_new=False)
        free = next(self._candidates(claim), None)
        if free is None:
            return None
        ended = None if held is None else decide_superseded(held, claim)
        leased = decide_claim(free, claim)
        assert self.apply_together([*([ended] if ended else []), leased])
        return Claimed(leased.result.lease, is_new=True)

    def _candidates(self, claim: Claim) -> Iterator[Sandbox]:
        for holder in (*claim.reservations, None):
            places = self._free.get(holder, [])
            for _, sandbox_id in places[bisect_left(places, (claim.name_prefix, "")) :]:
                row, listed = self.rows[sandbox_id], self.listed(sandbox_id)
                if not row.name.startswith(claim.name_prefix):
                    break
                if listed is not None and listed.status is row.status:
                    yield row

    def listed(self, sandbox_id: str) -> Sandbox | None:
        """The row as the listings have it."""
        if self.lag_sec and sandbox_id in self._before:
            changed_at, before = self._before[sandbox_id]
            if self.now() < changed_at + self.lag_sec:
                return before
        return self.rows.get(sandbox_id)

    def listing(self) -> list[Sandbox]:
        ids = self.rows.keys() | (self._before.keys() if self.lag_sec else ())
        return [row for each in sorted(ids) if (row := self.listed(each)) is not None]

    def apply(self, transitions: Sequence[PoolTransition]) -> list[bool]:
        return [self.apply_together([each]) for each in transitions]

    def apply_together(self, transitions: Sequence[Transition[Any]]) -> bool:
        # Whoever ends a lease comes before whoever begins one.
        ordered = sorted(transitions, key=lambda each: _is_allocated(each.after))
        if not all(self._fits(each) for each in ordered) or not self._keys_are_free(ordered):
            return False
        for each in ordered:
            self._write(each)
        self.events.append([event for each in transitions for event in each.events], self.now())
        return True

    def _fits(self, transition: Transition[Any]) -> bool:
        before = transition.before
        if before is None:
            return self._find(transition.result) is None
        found = self._find(before)
        return type(found) is type(before) and found.sequence == before.sequence

    def _find(self, entity: Any) -> Any:
        key = subject_of(entity)
        if isinstance(entity, Sandbox | Tombstone):
            return self.rows.get(key) or self.gone.get(key)
        return self.others.get(type(entity), {}).get(key)

    def _keys_are_free(self, transitions: Sequence[Transition[Any]]) -> bool:
        """No second lease, and no second ticket, of a track and key."""
        begun = [each.after for each in transitions if _is_allocated(each.after)]
        leases = {each.sandbox_id: _owner(each) for each in begun if each is not None}
        held = [each.before for each in transitions if _is_allocated(each.before)]
        ended = {each.sandbox_id for each in held if each is not None}
        tickets = [
            each.after
            for each in transitions
            if each.before is None and isinstance(each.after, Ticket)
        ]
        return (
            len(set(leases.values())) == len(leases)
            and all(
                self.leases.get(owner, sandbox_id) in {sandbox_id, *ended}
                for sandbox_id, owner in leases.items()
            )
            and not any(each.lease_key in self.tickets for each in tickets)
        )

    def _write(self, transition: Transition[Any]) -> None:
        before, after = transition.before, transition.after
        if isinstance(before or after, Sandbox | Tombstone):
            self._write_row(before, after)
            return
        kind = self.others.setdefault(type(before or after), {})
        if before is not None:
            found = kind.pop(subject_of(before))
            if isinstance(before, Ticket):
                del self.tickets[before.lease_key]
                after = after and replace(after, asked_at=found.asked_at)  # data, likewise
        if after is not None:
            kind[subject_of(after)] = after
            if isinstance(after, Ticket):
                self.tickets[after.lease_key] = after.ticket_id

    def _write_row(self, before: Any, after: Any) -> None:
        key = subject_of(before or after)
        row = self.rows.pop(key, None)
        self._before[key] = self.now(), row
        if row is not None:
            self.counts[row.status] -= 1
            if row.status is Status.ALLOCATED:
                del self.leases[_owner(row)]
            if row.status in FREE:
                places = self._free[row.reserved_for]
                del places[bisect_left(places, (row.name, key))]
        if isinstance(after, Tombstone):
            self.gone[key] = after
            return
        if row is not None and before.last_synced == after.last_synced != row.last_synced:
            after = replace(after, last_synced=row.last_synced)  # data, written without a decision
        self.rows[key] = after
        self.counts[after.status] += 1
        if after.status is Status.ALLOCATED:
            self.leases[_owner(after)] = key
        if after.status in FREE:
            insort(self._free.setdefault(after.reserved_for, []), (after.name, key))

    def alive(self) -> set[str]:
        """The ids of everything that exists; a tombstone does."""
        return {*self.rows, *self.gone, *(key for kind in self.others.values() for key in kind)}

    def confirm_listed(self, sandbox_ids: Sequence[str], now: int) -> None:
        for each in sandbox_ids:
            row = self.rows.get(each)
            if row is not None and row.status in UNUSED:
                self.rows[each] = replace(row, last_synced=now)


def _is_allocated(entity: Any) -> bool:
    return isinstance(entity, Sandbox) and entity.status is Status.ALLOCATED


def _owner(row: Sandbox) -> tuple[str, str]:
    return row.allocated_to_track or "", row.idempotency_key or ""
