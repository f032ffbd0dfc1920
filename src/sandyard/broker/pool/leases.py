"""Changes that a track makes to its lease, besides releasing it."""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from sandyard.broker.metrics import BrokerMetrics, counting_failures
from sandyard.broker.pool import errors
from sandyard.broker.pool.lease_model import (
    Extension,
    Replacement,
    check_replacements,
    decide_extension,
    decide_replacement,
    replaceable,
)
from sandyard.broker.pool.model import Claim, Lease, Sandbox, Status, Tombstone
from sandyard.broker.pool.names import KnownNames
from sandyard.broker.pool.ports import PoolStore, SandboxFilter, pages_of
from sandyard.broker.probes.errors import ProbeDeadlineError
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.broker.reservations.cache import ReservationCache
from sandyard.broker.reservations.model import Reservation, decide_lost
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, ConflictRetries, Transition
from sandyard.kit.clock import Clock
from sandyard.kit.wired import wired

_PAGE = 50
_RETRY_AFTER = 30


class CheckFree(Protocol):
    """Checks the free sandboxes of one replacement."""

    @property
    def refused(self) -> int:
        """How many have failed so far."""

    async def __call__(self, free: Sandbox) -> bool:
        """Whether the sandbox passes. Raises ProbeDeadlineError when no more are to be tried."""


@wired
class Leases:
    """`begin_check` is called for each replacement that a track requests; only sandboxes that
    pass its check are leased."""

    store: PoolStore
    clock: Clock
    metrics: BrokerMetrics
    lease_max_sec: int
    max_replacements: int
    hold_sec: int
    assigner: SandboxAssigner
    reservations: ReservationCache
    names: KnownNames
    begin_check: Callable[[], CheckFree] | None = None

    async def extend(
        self, sandbox_id: str, extension: Extension, *, by: str | None = None
    ) -> Lease:
        """Move the end of the track's own live lease, once for each key; returns the current lease,
        which may be on a sandbox that has replaced this one. `by` is who does it, if not the track.

        Raises AllocationExpiredError, LeaseTooLongError, TransitionNotAllowedError,
        NotSandboxOwnerError and SandboxNotFoundError.
        """

        def decide(row: Sandbox | Tombstone | None, cause: Cause) -> Transition[Sandbox] | None:
            return decide_extension(row, extension, longest_sec=self.lease_max_sec, cause=cause)

        with counting_failures(self.metrics.extended):
            who = by or actor("track", extension.track_id)
            row, changed = await self.assigner.change_lease(sandbox_id, who, decide)
        assert isinstance(row, Sandbox)  # noqa: S101 - a tombstone is not found
        self.metrics.extended.labels("extended" if changed else "repeated").inc()
        return row.lease

    async def replace(
        self, sandbox_id: str, wanted: Replacement, *, check: CheckFree | None = None
    ) -> Lease:
        """Give the track another sandbox for the rest of its lease, and hold the old one; both or
        neither. A repeat returns the lease of the replacement.

        Raises NoSandboxesAvailableError, AllocationExpiredError, TransitionNotAllowedError,
        NotSandboxOwnerError, SandboxNotFoundError, ReplacementLimitError, and ProbeDeadlineError if
        no free sandbox passes; then nothing has changed.
        """
        if check is None and self.begin_check is not None:
            check = self.begin_check()
        with counting_failures(self.metrics.replaced):
            lease, is_new = await self._replace(sandbox_id, wanted, check)
        self.metrics.replaced.labels("replaced" if is_new else "repeated").inc()
        return lease

    async def _replace(
        self, sandbox_id: str, wanted: Replacement, check: CheckFree | None
    ) -> tuple[Lease, bool]:
        async for _ in ConflictRetries():
            now = int(self.clock.now())
            old = replaceable(await self.assigner.find(sandbox_id), wanted.track_id, now)
            if old.replaced_by is not None:
                return await self._follow(old, wanted.track_id), False
            if wanted.unless_probed and old.probed_at is not None:
                return old.lease, False
            check_replacements(old, wanted, most=self.max_replacements, now=now)
            lease = await self._swap(old, wanted, check)
            if lease is not None:
                return lease, True
            if await self._is_same(old):
                if check is not None and check.refused:
                    raise ProbeDeadlineError
                await self.names.require(wanted.name_prefix, retry_after=_RETRY_AFTER)
                raise errors.NoSandboxesAvailableError(retry_after=_RETRY_AFTER)
        raise errors.RowBusyError

    async def _swap(
        self, old: Sandbox, wanted: Replacement, check: CheckFree | None
    ) -> Lease | None:
        """The lease on another sandbox; None if none is free, or the old one has changed."""
        async for free in self._free(wanted):
            if free.sandbox_id == old.sandbox_id:
                continue  # a lagging index still lists it as free
            if check is not None and not await check(free):
                continue
            lease = await self._move(old, free, wanted, is_probed=check is not None)
            if lease is not None or not await self._is_same(old):
                return lease
        return None

    async def _move(
        self, old: Sandbox, free: Sandbox, wanted: Replacement, *, is_probed: bool
    ) -> Lease | None:
        """The lease on the free sandbox; None if one of the two has changed. Retries if only the
        reservation has changed."""
        async for _ in ConflictRetries():
            by = wanted.by or actor("track", wanted.track_id)
            cause = Cause.by(by, self.clock, reason=wanted.reason)
            until = cause.at_ms // 1000 + self.hold_sec
            held, leased = decide_replacement(
                old,
                free,
                held_until=until,
                cause=cause,
                is_counted=wanted.is_counted,
                is_probed=is_probed,
            )
            lost = await self._lost(old, free, cause)
            if await self.store.apply_together(held, leased, *lost):
                return leased.result.lease
            if not lost or not (await self._is_same(old) and await self._is_same(free)):
                return None
        raise errors.RowBusyError

    async def _lost(
        self, old: Sandbox, free: Sandbox, cause: Cause
    ) -> Sequence[Transition[Reservation]]:
        """The reservation loses one sandbox if both sandboxes were reserved ones."""
        if old.reservation_id is None or free.reservation_id is None:
            return ()
        found = await self.store.find_reservation(old.reservation_id)
        if found is None or not found.is_active(cause.at_ms // 1000):
            return ()
        return [decide_lost(found, cause)]

    async def _free(self, wanted: Replacement) -> AsyncIterator[Sandbox]:
        """Sandboxes that the track may lease: those of its reservations, available ones, and then
        again those of its reservations, which may have gained some meanwhile."""
        for rows in (self._reserved, self._available, self._reserved):
            async for row in rows(wanted):
                yield row

    async def _reserved(self, wanted: Replacement) -> AsyncIterator[Sandbox]:
        claim = Claim(wanted.track_id, wanted.track_id, int(self.clock.now()), client=wanted.client)
        for each in await self.reservations.of(claim):
            for row in await self.store.reserved_for(each, limit=_PAGE):
                if row.name.startswith(wanted.name_prefix):
                    yield row

    async def _available(self, wanted: Replacement) -> AsyncIterator[Sandbox]:
        """In random order within a page, so that concurrent callers do not try the same one."""
        where = SandboxFilter(Status.AVAILABLE, name_prefix=wanted.name_prefix)
        async for rows in pages_of(self.store, where, size=_PAGE):
            for row in random.sample(rows, len(rows)):
                yield row

    async def _is_same(self, row: Sandbox) -> bool:
        found = await self.store.find(row.sandbox_id)
        return isinstance(found, Sandbox) and found.sequence == row.sequence

    async def _follow(self, old: Sandbox, track_id: str) -> Lease:
        row: Sandbox | Tombstone | None = old
        while isinstance(row, Sandbox) and row.replaced_by is not None:
            row = await self.store.find(row.replaced_by)
        if not isinstance(row, Sandbox) or row.status is not Status.ALLOCATED:
            raise errors.AllocationExpiredError
        if row.allocated_to_track != track_id:
            raise errors.NotSandboxOwnerError
        return row.lease
