"""The pool in memory, with what a process stores beside it: for runs of millions of operations.

It keeps the promises of the port, as the contract suite shows; its listings may lag."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from sandyard.broker.pool.model import (
    Claim,
    Claimed,
    HeldLease,
    Lease,
    PoolTransition,
    Sandbox,
    Status,
    Tombstone,
    is_overdue,
)
from sandyard.broker.pool.ports import PoolCounts, SandboxFilter, Sort
from sandyard.broker.pool.provider_model import is_deletion_due
from sandyard.broker.queue.model import QueueOrder, Ticket
from sandyard.broker.reservations.model import Reservation
from sandyard.kit.changes.events import EventLog
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.circuits import CircuitState
from sandyard.kit.jobs import JobRun
from sandyard.kit.paging import InvalidCursorError, Page, decode_cursor, encode_cursor
from tests.fakes.pool.events import Call, MemoryEventLog
from tests.fakes.pool.state import PoolState

T = TypeVar("T")


async def at_once(work: Callable[[], T]) -> T:
    await asyncio.sleep(0)
    return work()


class MemoryPoolStore:
    """One process's view of a pool that many may share."""

    def __init__(self, state: PoolState, call: Call = at_once) -> None:
        self._state = state
        self._call = call
        self.events = cast("EventLog", MemoryEventLog(state.events, call, state.alive))

    async def start(self) -> None: ...

    async def claim(self, claim: Claim) -> Claimed | None:
        return await self._call(lambda: self._state.claim(claim))

    async def find(self, sandbox_id: str) -> Sandbox | Tombstone | None:
        state = self._state
        return await self._call(lambda: state.rows.get(sandbox_id) or state.gone.get(sandbox_id))

    async def find_lease(self, track_id: str, key: str) -> Lease | None:
        def work() -> Lease | None:
            row = self._state.rows.get(self._state.leases.get((track_id, key), ""))
            return None if row is None else row.lease

        return await self._call(work)

    async def apply(self, transitions: Sequence[PoolTransition]) -> Sequence[bool]:
        return await self._call(lambda: self._state.apply(transitions)) if transitions else []

    async def apply_together(self, *transitions: Transition[Any]) -> bool:
        return await self._call(lambda: self._state.apply_together(transitions))

    async def confirm_listed(self, sandbox_ids: Sequence[str], *, now: int) -> None:
        await self._call(lambda: self._state.confirm_listed(sandbox_ids, now))

    async def renew_tombstones(self, sandbox_ids: Sequence[str], *, kept_until: int) -> None:
        def work() -> None:
            gone = self._state.gone
            gone.update(
                {e: replace(gone[e], kept_until=kept_until) for e in sandbox_ids if e in gone}
            )

        await self._call(work)

    async def drop_tombstones(self, *, now: int) -> None:
        def work() -> None:
            gone = self._state.gone
            for each in [each for each in gone.values() if each.kept_until <= now]:
                del gone[each.sandbox_id]

        await self._call(work)

    async def tombstoned(self, sandbox_ids: Sequence[str]) -> set[str]:
        return await self._call(lambda: self._state.gone.keys() & set(sandbox_ids))

    async def everything(self) -> AsyncIterator[Sequence[Sandbox]]:
        yield await self._call(self._state.listing)

    async def audit(self) -> AsyncIterator[Sequence[Sandbox | HeldLease | Tombstone]]:
        def work() -> list[Sandbox | HeldLease | Tombstone]:
            state = self._state
            leases = [HeldLease(*key, state.rows[each].lease) for key, each in state.leases.items()]
            return [*state.rows.values(), *state.gone.values(), *leases]

        yield await self._call(work)

    async def page(self, where: SandboxFilter, *, limit: int, cursor: str | None) -> Page[Sandbox]:
        rows = [row for row in await self._call(self._state.listing) if _matches(row, where)]
        rows.sort(key=_by_name, reverse=where.sort is not None and where.sort.is_descending)
        if where.sort in (Sort.EXPIRES_AT, Sort.EXPIRES_AT_DESCENDING):
            leased = sorted(filter(_is_leased, rows), key=_by_end, reverse=where.sort.is_descending)
            rows = leased + [row for row in rows if not _is_leased(row)]
        return _page(f"sandboxes {where}", rows, limit, cursor)

    def overdue(self, *, ended_by: int, size: int = 100) -> AsyncIterator[Sequence[Sandbox]]:
        return self._due(lambda row: is_overdue(row, grace_sec=0, now=ended_by), size)

    def deletable(self, *, now: int, size: int = 100) -> AsyncIterator[Sequence[Sandbox]]:
        return self._due(lambda row: is_deletion_due(row, now=now), size)

    async def _due(
        self, is_due: Callable[[Sandbox], bool], size: int
    ) -> AsyncIterator[Sequence[Sandbox]]:
        due = [row for row in await self._call(self._state.listing) if is_due(row)]
        for start in range(0, len(due), size):
            yield due[start : start + size]

    async def counts(self) -> PoolCounts:
        counted = await self._call(lambda: dict(self._state.counts))
        return PoolCounts({each: counted.get(each, 0) for each in Status}, counted_at=None)

    async def reserved_for(self, holder: str, *, limit: int) -> Sequence[Sandbox]:
        def work() -> list[Sandbox]:
            rows = self._state.rows.values()
            return [row for row in rows if row.reserved_for == holder][:limit]

        return await self._call(work)

    async def check(self) -> None:
        await self._call(lambda: None)

    async def close(self) -> None: ...

    async def find_ticket(self, track_id: str, key: str) -> Ticket | None:
        return next(iter(await self.find_tickets([(track_id, key)])), None)

    async def find_tickets(self, keys: Sequence[tuple[str, str]]) -> Sequence[Ticket]:
        def work() -> list[Ticket]:
            ids, tickets = self._state.tickets, self._all(Ticket)
            return [tickets[ids[key]] for key in keys if key in ids]

        return await self._call(work)

    async def tickets(self, *, limit: int, after: QueueOrder | None) -> Sequence[Ticket]:
        found = sorted(
            await self._call(lambda: list(self._all(Ticket).values())),
            key=lambda each: each.queue_order,
        )
        return [each for each in found if after is None or each.queue_order > after][:limit]

    async def count_waiting(self, *, before: Ticket | None = None) -> int:
        tickets = await self.tickets(limit=10**9, after=None)
        return sum(
            each.sandbox_id is None and (before is None or each.queue_order < before.queue_order)
            for each in tickets
        )

    async def renew_tickets(self, tickets: Sequence[Ticket], *, asked_at: int) -> None:
        def work() -> None:
            there = self._all(Ticket)
            for each in [each.ticket_id for each in tickets if each.ticket_id in there]:
                there[each] = replace(there[each], asked_at=asked_at)

        await self._call(work)

    async def open_reservations(self) -> Sequence[Reservation]:
        found = await self._call(lambda: list(self._all(Reservation).values()))
        return [each for each in found if each.ended_at is None]

    async def find_reservation(self, reservation_id: str) -> Reservation | None:
        return await self._call(lambda: self._all(Reservation).get(reservation_id))

    async def reservations(
        self, *, starts_before: int, ends_after: int, limit: int, cursor: str | None
    ) -> Page[Reservation]:
        found = [
            each
            for each in await self._call(lambda: list(self._all(Reservation).values()))
            if each.ends_at > ends_after and each.starts_at < starts_before
        ]
        found.sort(key=lambda each: (each.ends_at, each.reservation_id))
        return _page(f"reservations {starts_before} {ends_after}", found, limit, cursor)

    async def find_single(self, kind: type[T]) -> T | None:
        return await self._call(lambda: next(iter(self._all(kind).values()), None))

    def _all(self, kind: type[T]) -> dict[str, T]:
        return self._state.others.setdefault(kind, {})


def _matches(row: Sandbox, where: SandboxFilter) -> bool:
    return (
        where.status in (None, row.status)
        and where.track in (None, row.allocated_to_track)
        and row.name.startswith(where.name_prefix)
        and any(
            (each or "").startswith(where.search)
            for each in (row.sandbox_id, row.allocated_to_track, row.name)
        )
    )


def _by_name(row: Sandbox) -> tuple[str, str]:
    return row.name, row.sandbox_id


def _is_leased(row: Sandbox) -> bool:
    return row.status is Status.ALLOCATED


def _by_end(row: Sandbox) -> tuple[int, str]:
    return row.lease.expires_at, row.sandbox_id


def _page(listing: str, found: Sequence[T], limit: int, cursor: str | None) -> Page[T]:
    start = 0
    if cursor is not None:
        match decode_cursor(listing, cursor):
            case [int() as start]:
                pass
            case _:
                raise InvalidCursorError
    end = start + limit
    return Page(found[start:end], encode_cursor(listing, [end]) if end < len(found) else None)


@dataclass(slots=True)
class HeldJob:
    holder: str | None = None
    run: JobRun = field(default_factory=JobRun)


class MemoryJobLeases:
    def __init__(self, jobs: dict[str, HeldJob], call: Call = at_once) -> None:
        self._jobs = jobs
        self._call = call

    async def acquire(
        self,
        job: str,
        *,
        holder: str,
        now: float,
        held_until: float,
        unless_started_after: float | None = None,
    ) -> bool:
        def work() -> bool:
            held = self._jobs.setdefault(job, HeldJob())
            run = held.run
            if run.held_until is not None and now < run.held_until:
                return False
            is_early = (
                unless_started_after is not None
                and held.holder is None
                and run.started_at is not None
                and run.started_at > unless_started_after
            )
            if not is_early:
                held.holder, held.run = holder, JobRun(now, run.finished_at, held_until)
            return not is_early

        return await self._call(work)

    async def renew(self, job: str, *, holder: str, held_until: float) -> bool:
        return await self._change(job, holder, holder, held_until=held_until)

    async def release(self, job: str, *, holder: str, finished_at: float | None) -> None:
        finished = {} if finished_at is None else {"finished_at": finished_at}
        await self._change(job, holder, None, held_until=None, **finished)

    async def _change(self, job: str, by: str, holder: str | None, **values: float | None) -> bool:
        def work() -> bool:
            held = self._jobs.get(job)
            if held is None or held.holder != by:
                return False
            held.holder, held.run = holder, replace(held.run, **values)
            return True

        return await self._call(work)

    async def runs(self, jobs: Sequence[str]) -> Mapping[str, JobRun]:
        return await self._call(lambda: {e: self._jobs[e].run for e in jobs if e in self._jobs})

    async def touch(self, *, now: float) -> None:
        def work() -> None:
            self._jobs["write-check"] = HeldJob(run=JobRun(finished_at=now))

        await self._call(work)


class MemoryCircuits:
    def __init__(self, states: dict[str, CircuitState], call: Call = at_once) -> None:
        self._states = states
        self._call = call

    async def find(self, circuit: str) -> CircuitState:
        return await self._change(circuit)

    async def move(self, circuit: str, state: str, opened_at: float | None) -> CircuitState:
        return await self._change(circuit, state=state, opened_at=opened_at)

    async def count_failure(self, circuit: str) -> CircuitState:
        def work() -> CircuitState:
            found = self._states.get(circuit, CircuitState())
            self._states[circuit] = replace(found, failures=found.failures + 1)
            return self._states[circuit]

        return await self._call(work)

    async def forget_failures(self, circuit: str) -> CircuitState:
        return await self._change(circuit, failures=0)

    async def _change(self, circuit: str, **values: Any) -> CircuitState:
        def work() -> CircuitState:
            self._states[circuit] = replace(self._states.get(circuit, CircuitState()), **values)
            return self._states[circuit]

        return await self._call(work)
