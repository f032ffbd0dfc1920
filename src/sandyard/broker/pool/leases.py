"""Changes that a track makes to its lease, besides releasing it."""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from sandyard.broker.metrics import BrokerMetrics, counting_failures
from sandyard.broker.pool.changes import SandboxChanges
from sandyard.broker.pool.errors import (
    AllocationExpiredError,
    NoSandboxesAvailableError,
    NotSandboxOwnerError,
    RowBusyError,
)
from sandyard.broker.pool.extension_model import Extension, decide_extension
from sandyard.broker.pool.filter_model import SandboxFilter
from sandyard.broker.pool.hold_model import Replacement, decide_replacement, replaceable
from sandyard.broker.pool.listing import pages_of
from sandyard.broker.pool.model import Claim, Lease, Sandbox, Status, Tombstone
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.probes.errors import ProbeDeadlineError
from sandyard.broker.reservations.cache import ReservationCache
from sandyard.broker.reservations.model import Reservation, decide_lost
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, ConflictRetries, Transition
from sandyard.kit.clock import Clock

_PAGE = 50
_RETRY_AFTER = 30


class CheckFree(Protocol):
    """Checks the free sandboxes of one replacement."""

    @property
    def refused(self) -> int:
        """How many have failed so far."""
        ...

    async def __call__(self, free: Sandbox) -> bool:
        """Whether the sandbox passes. Raises ProbeDeadlineError when no more are to be tried."""
        ...


class Leases:
    def __init__(
        self,
        store: PoolStore,
        *,
        clock: Clock,
        metrics: BrokerMetrics,
        lease_max_sec: int,
        hold_sec: int,
        changes: SandboxChanges,
        reservations: ReservationCache,
        begin_check: Callable[[], CheckFree] | None = None,
    ) -> None:
        """`begin_check` is called for each replacement that a track requests; only sandboxes that
        pass its check are leased."""
        self._store = store
        self._changes = changes
        self._clock = clock
        self._hold_sec = hold_sec
        self._reservations = reservations
        self._metrics = metrics
        self._lease_max_sec = lease_max_sec
        self._begin_check = begin_check

    async def extend(self, sandbox_id: str, asked: Extension) -> Lease:
        """Move the end of the track's own live lease, once for each key; returns the current lease.

        Raises AllocationExpiredError, LeaseTooLongError, TransitionNotAllowedError,
        NotSandboxOwnerError and SandboxNotFoundError.
        """

        def decide(row: Sandbox | Tombstone | None, cause: Cause) -> Transition[Sandbox] | None:
            return decide_extension(row, asked, longest_sec=self._lease_max_sec, cause=cause)

        with counting_failures(self._metrics.extended):
            row, changed = await self._changes.change(
                sandbox_id, actor("track", asked.track_id), decide
            )
        assert isinstance(row, Sandbox)  # noqa: S101 - a tombstone is not found
        self._metrics.extended.labels("extended" if changed else "repeated").inc()
        return row.lease

    async def replace(
        self, sandbox_id: str, asked: Replacement, *, check: CheckFree | None = None
    ) -> Lease:
        """Give the track another sandbox for the rest of its lease, and hold the old one; both or
        neither. A repeat returns the lease of the replacement.

        Raises NoSandboxesAvailableError, AllocationExpiredError, TransitionNotAllowedError,
        NotSandboxOwnerError, SandboxNotFoundError, and ProbeDeadlineError if no free sandbox
        passes; then nothing has changed.
        """
        if check is None and self._begin_check is not None:
            check = self._begin_check()
        with counting_failures(self._metrics.replaced):
            lease, is_new = await self._replace(sandbox_id, asked, check)
        self._metrics.replaced.labels("replaced" if is_new else "repeated").inc()
        return lease

    async def _replace(
        self, sandbox_id: str, asked: Replacement, check: CheckFree | None
    ) -> tuple[Lease, bool]:
        async for _ in ConflictRetries():
            now = int(self._clock.now())
            old = replaceable(await self._changes.find(sandbox_id), asked.track_id, now)
            if old.replaced_by is not None:
                return await self._follow(old, asked.track_id), False
            if asked.unless_probed and old.probed_at is not None:
                return old.lease, False
            lease = await self._swap(old, asked, check)
            if lease is not None:
                return lease, True
            if await self._is_same(old):
                if check is not None and check.refused:
                    raise ProbeDeadlineError
                raise NoSandboxesAvailableError(retry_after=_RETRY_AFTER)
        raise RowBusyError

    async def _swap(
        self, old: Sandbox, asked: Replacement, check: CheckFree | None
    ) -> Lease | None:
        """The lease on another sandbox; None if none is free, or the old one has changed."""
        async for free in self._free(asked):
            if free.sandbox_id == old.sandbox_id:
                continue  # a lagging index still lists it as free
            if check is not None and not await check(free):
                continue
            lease = await self._move(old, free, asked, is_probed=check is not None)
            if lease is not None or not await self._is_same(old):
                return lease
        return None

    async def _move(
        self, old: Sandbox, free: Sandbox, asked: Replacement, *, is_probed: bool
    ) -> Lease | None:
        """The lease on the free sandbox; None if one of the two has changed. Retries if only the
        reservation has changed."""
        async for _ in ConflictRetries():
            cause = Cause.by(actor("track", asked.track_id), self._clock, reason=asked.reason)
            until = cause.at_ms // 1000 + self._hold_sec
            held, leased = decide_replacement(
                old, free, held_until=until, cause=cause, is_probed=is_probed
            )
            lost = await self._lost(old, free, cause)
            if await self._store.apply_together(held, leased, *lost):
                return leased.result.lease
            if not lost or not (await self._is_same(old) and await self._is_same(free)):
                return None
        raise RowBusyError

    async def _lost(
        self, old: Sandbox, free: Sandbox, cause: Cause
    ) -> Sequence[Transition[Reservation]]:
        """The reservation loses one sandbox if both sandboxes were reserved ones."""
        if old.reservation_id is None or free.reservation_id is None:
            return ()
        found = await self._store.find_reservation(old.reservation_id)
        if found is None or not found.is_active(cause.at_ms // 1000):
            return ()
        return [decide_lost(found, cause)]

    async def _free(self, asked: Replacement) -> AsyncIterator[Sandbox]:
        """Sandboxes that the track may lease: those of its reservations, available ones, and then
        again those of its reservations, which may have gained some meanwhile."""
        for rows in (self._reserved, self._available, self._reserved):
            async for row in rows(asked):
                yield row

    async def _reserved(self, asked: Replacement) -> AsyncIterator[Sandbox]:
        claim = Claim(asked.track_id, asked.track_id, int(self._clock.now()), client=asked.client)
        for each in await self._reservations.of(claim):
            for row in await self._store.reserved_for(each, limit=_PAGE):
                if row.name.startswith(asked.name_prefix):
                    yield row

    async def _available(self, asked: Replacement) -> AsyncIterator[Sandbox]:
        """In random order within a page, so that concurrent callers do not try the same one."""
        where = SandboxFilter(Status.AVAILABLE, name_prefix=asked.name_prefix)
        async for rows in pages_of(self._store, where, size=_PAGE):
            for row in random.sample(rows, len(rows)):
                yield row

    async def _is_same(self, row: Sandbox) -> bool:
        found = await self._store.find(row.sandbox_id)
        return isinstance(found, Sandbox) and found.sequence == row.sequence

    async def _follow(self, old: Sandbox, track_id: str) -> Lease:
        """The lease of the sandbox that replaced this one."""
        row: Sandbox | Tombstone | None = old
        while isinstance(row, Sandbox) and row.replaced_by is not None:
            row = await self._store.find(row.replaced_by)
        if not isinstance(row, Sandbox) or row.status is not Status.ALLOCATED:
            raise AllocationExpiredError
        if row.allocated_to_track != track_id:
            raise NotSandboxOwnerError
        return row.lease
