"""The Broker's use cases. Each reads the clock once and leaves decisions to the model."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Required, TypedDict, Unpack

from sandyard.broker.metrics import BrokerMetrics, counting_failures
from sandyard.broker.pool import errors
from sandyard.broker.pool.action_model import Action, decide_action
from sandyard.broker.pool.lease_model import decide_hold, lease_seconds
from sandyard.broker.pool.model import (
    DELETING,
    OPERATOR,
    Claim,
    Claimed,
    Sandbox,
    Tombstone,
    decide_mark,
    existing,
    is_sandbox_id,
    owned_by,
)
from sandyard.broker.pool.names import KnownNames
from sandyard.broker.pool.ports import PoolCounts, PoolStore, SandboxFilter, pages_of
from sandyard.broker.queue.assignment import Decide, SandboxAssigner
from sandyard.broker.queue.errors import TicketNotFoundError
from sandyard.broker.queue.model import URGENCY
from sandyard.broker.queue.service import Queue, QueuePosition, Waiter
from sandyard.broker.reservations.cache import ReservationCache
from sandyard.kit.changes.events import EventQuery, LoggedEvent, actor
from sandyard.kit.changes.frozen import fast_constructor
from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.clock import Clock
from sandyard.kit.errors import UnavailableError
from sandyard.kit.paging import Page
from sandyard.kit.wired import wired

logger = logging.getLogger(__name__)

_make_claim = fast_constructor(Claim)
_RETRY_AFTER_EXHAUSTED = 30
_RETRY_AFTER_WAITING = 1


@dataclass(frozen=True, slots=True)
class Marked:
    sandbox_id: str
    status: str
    deletion_requested_at: int | None
    """None while it is held."""


class ClaimRequest(TypedDict, total=False):
    track_id: Required[str]
    idempotency_key: str | None
    name_prefix: str
    track_name: str | None
    lab_minutes: int | None
    """The length of a new lease; None: that of the sandbox's lab."""
    client: str | None
    """The name of the calling client, if it is a named one."""


CountCall = Callable[[str], Awaitable[int | None]]
"""Counts a call of this track; returns the seconds it must wait if it exceeds the limit."""
CheckClaimed = Callable[[Claimed, Claim], Awaitable[Claimed]]


@wired
class Broker:
    """`check_claimed` is called for every lease before its track receives it, and may replace its
    sandbox."""

    store: PoolStore
    clock: Clock
    metrics: BrokerMetrics
    waiting: Queue
    reservations: ReservationCache
    assigner: SandboxAssigner
    names: KnownNames
    lease_max_sec: int
    hold_sec: int
    rate_limit: CountCall | None = None
    check_claimed: CheckClaimed | None = None

    async def allocate(
        self,
        *,
        wait_sec: float | None = None,
        urgency: int = URGENCY,
        waiter: Waiter | None = None,
        **request: Unpack[ClaimRequest],
    ) -> Claimed:
        """The lease of this track and key: the live one if there is one, else a new one.

        With `wait_sec` the call waits up to this long for a sandbox; a retry keeps its position. If
        the `waiter` leaves, the wait ends and nothing is leased to it. Raises
        NoSandboxesAvailableError only if no free sandbox matched, TrackRateLimitedError, and
        UnavailableError if the engine did not respond; a retry then returns the lease, if any.
        """
        started = time.perf_counter()
        claim = self._claim(**request)
        if self.rate_limit is not None:
            await self._limit(self.rate_limit, claim.track_id)
        try:
            if wait_sec is None:
                if own := await self.reservations.of(claim):
                    claim = claim.within(own)
                claimed = await self.store.claim(claim)
                if claimed is None:
                    claimed = await self.waiting.claim_without_waiting(claim)
            else:
                make_claim = partial(self._claim, **request)
                claimed = await self.waiting.wait(
                    make_claim, wait_sec=wait_sec, urgency=urgency, waiter=waiter
                )
        except UnavailableError:
            self.metrics.allocated["unavailable"].inc()
            raise
        if wait_sec is None:
            self.metrics.allocation_latency.observe(time.perf_counter() - started)
        if claimed is None:
            is_gone = waiter is not None and waiter.is_gone
            self.metrics.allocated["disconnected" if is_gone else "exhausted"].inc()
            retry_after = _RETRY_AFTER_EXHAUSTED if wait_sec is None else _RETRY_AFTER_WAITING
            await self.names.require(claim.name_prefix, retry_after=retry_after)
            raise errors.NoSandboxesAvailableError(retry_after=retry_after)
        if self.check_claimed is not None:
            claimed = await self._checked(self.check_claimed, claimed, claim)
        self._count(claimed)
        return claimed

    async def queue(
        self, *, urgency: int = URGENCY, **request: Unpack[ClaimRequest]
    ) -> Claimed | QueuePosition:
        """The lease without waiting, or the track's ticket with its position, which says so if the
        pool has no sandbox with this name at all."""
        make_claim = partial(self._claim, **request)
        claim = make_claim()
        if self.rate_limit is not None:
            await self._limit(self.rate_limit, claim.track_id)
        answer = await self.waiting.ask(make_claim, urgency=urgency)
        if isinstance(answer, Claimed):
            if self.check_claimed is not None:
                answer = await self._checked(self.check_claimed, answer, claim)
            self._count(answer)
            return answer
        position = await self.waiting.position_of(answer)
        return replace(position, message=await self.names.missing(claim.name_prefix))

    async def leave_queue(self, *, track_id: str, idempotency_key: str | None) -> None:
        """Leave the queue. Raises TicketNotFoundError if there is no ticket."""
        if not await self.waiting.leave(track_id=track_id, key=idempotency_key or track_id):
            raise TicketNotFoundError

    def _claim(
        self,
        *,
        track_id: str,
        idempotency_key: str | None = None,
        name_prefix: str = "",
        track_name: str | None = None,
        lab_minutes: int | None = None,
        client: str | None = None,
    ) -> Claim:
        at_ms = int(self.clock.now() * 1000)
        length = lab_minutes and lease_seconds(lab_minutes, longest_sec=self.lease_max_sec)
        whose = (track_id, idempotency_key or track_id, at_ms // 1000)
        return _make_claim(*whose, name_prefix, track_name, at_ms, length, client, ())

    async def _limit(self, count_call: CountCall, track_id: str) -> None:
        wait = await count_call(track_id)
        if wait is not None:
            self.metrics.allocated["rate_limited"].inc()
            raise errors.TrackRateLimitedError(retry_after=wait)

    async def _checked(self, check: CheckClaimed, claimed: Claimed, claim: Claim) -> Claimed:
        try:
            return await check(claimed, claim)
        except errors.NoSandboxesAvailableError:
            self.metrics.allocated["exhausted"].inc()
            raise
        except UnavailableError:
            self.metrics.allocated["unavailable"].inc()
            raise

    def _count(self, claimed: Claimed) -> None:
        self.metrics.allocated["created" if claimed.is_new else "repeated"].inc()
        if not claimed.is_new:
            self.metrics.idempotent_hits.inc()

    async def mark_for_deletion(self, *, track_id: str, sandbox_id: str) -> Marked:
        """Release the sandbox, or the one that has replaced it in the track's lease. A repeat
        changes nothing and returns the same."""

        def decide(row: Sandbox | Tombstone | None, cause: Cause) -> Transition[Sandbox] | None:
            return decide_mark(row, track_id=track_id, cause=cause)

        with counting_failures(self.metrics.deletion_marked):
            by = actor("track", track_id)
            row, changed = await self.assigner.change_lease(sandbox_id, by, decide)
        self.metrics.deletion_marked.labels("marked" if changed else "repeated").inc()
        status = "deleted" if isinstance(row, Tombstone) else str(row.status)
        return Marked(row.sandbox_id, status, row.deletion_requested_at)

    async def release(self, *, track_id: str, idempotency_key: str | None) -> Marked:
        """Release the sandbox that the track has leased with this key. A repeat returns the same,
        until the sandbox is deleted. Raises LeaseNotFoundError."""
        key = idempotency_key or track_id
        lease = await self.store.find_lease(track_id, key)
        if lease is not None:
            return await self.mark_for_deletion(track_id=track_id, sandbox_id=lease.sandbox_id)
        async for rows in pages_of(self.store, SandboxFilter(track=track_id)):
            for row in rows:
                if row.idempotency_key == key and row.status in DELETING:
                    return Marked(row.sandbox_id, str(row.status), row.deletion_requested_at)
        raise errors.LeaseNotFoundError

    async def get_sandbox(self, *, track_id: str, sandbox_id: str) -> Sandbox:
        """The sandbox, for its current or last track."""
        return owned_by(await self.assigner.find(sandbox_id), track_id)

    async def get_history(
        self, sandbox_id: str, *, limit: int, cursor: str | None
    ) -> Page[LoggedEvent]:
        if not is_sandbox_id(sandbox_id):
            raise errors.SandboxNotFoundError
        query = EventQuery(subject=sandbox_id)
        page = await self.store.events.page(query, limit=limit, cursor=cursor)
        if not page.items and cursor is None and await self.assigner.find(sandbox_id) is None:
            raise errors.SandboxNotFoundError
        return page

    async def inspect_sandbox(self, sandbox_id: str) -> Sandbox:
        return existing(await self.assigner.find(sandbox_id))

    async def act(
        self,
        action: Action,
        *,
        sandbox_id: str,
        reason: str | None = None,
        by: str = OPERATOR,
    ) -> Sandbox:
        """Carry out an operator's action, or raise TransitionNotAllowedError."""

        def decide(row: Sandbox | Tombstone | None, cause: Cause) -> Transition[Sandbox]:
            return decide_action(row, action, cause.because(reason))

        return await self._change(action, sandbox_id, by, decide)

    async def hold(
        self, *, sandbox_id: str, reason: str, until: int | None = None, by: str = OPERATOR
    ) -> Sandbox:
        """Hold a sandbox for inspection, whatever its state; its lease ends."""

        def decide(row: Sandbox | Tombstone | None, cause: Cause) -> Transition[Sandbox]:
            end = int(self.clock.now()) + self.hold_sec if until is None else until
            return decide_hold(row, end, cause.because(reason))

        return await self._change("hold", sandbox_id, by, decide)

    async def _change(self, action: str, sandbox_id: str, by: str, decide: Decide) -> Sandbox:
        row, _ = await self.assigner.change(sandbox_id, by, decide)
        assert isinstance(row, Sandbox)  # noqa: S101 - operators change no tombstones
        logger.info(
            "an operator changed a sandbox",
            extra={"action": action, "sandbox_id": sandbox_id, "status": row.status, "by": by},
        )
        return row

    async def stats(self) -> PoolCounts:
        counts = await self.store.counts()
        if counts.counted_at is None:
            return replace(counts, counted_at=int(self.clock.now()))
        return counts
