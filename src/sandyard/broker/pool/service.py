"""The Broker's use cases. Each reads the clock once and leaves decisions to the model."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, Required, TypedDict, Unpack

from sandyard.broker.metrics import BrokerMetrics, counting_failures
from sandyard.broker.pool.action_model import Action, decide_action
from sandyard.broker.pool.changes import SandboxChanges, is_sandbox_id
from sandyard.broker.pool.errors import (
    NoSandboxesAvailableError,
    SandboxNotFoundError,
    TrackRateLimitedError,
)
from sandyard.broker.pool.extension_model import lease_seconds
from sandyard.broker.pool.filter_model import SandboxFilter
from sandyard.broker.pool.hold_model import decide_hold
from sandyard.broker.pool.model import (
    Claim,
    Claimed,
    Sandbox,
    Tombstone,
    decide_mark,
    owned_by,
)
from sandyard.broker.pool.ports import PoolCounts, PoolStore
from sandyard.broker.queue.errors import TicketNotFoundError
from sandyard.broker.queue.model import URGENCY
from sandyard.broker.queue.service import Queue, QueuePosition
from sandyard.broker.queue.watch import Waiter
from sandyard.broker.reservations.cache import ReservationCache
from sandyard.kit.changes.events import EventQuery, LoggedEvent, actor
from sandyard.kit.changes.frozen import fast_constructor
from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.clock import Clock
from sandyard.kit.errors import UnavailableError
from sandyard.kit.paging import Page

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


class RateLimit(Protocol):
    async def wait_for(self, track_id: str) -> int | None:
        """Count a call of this track; returns the seconds it must wait if it exceeds the limit."""
        ...


class CheckClaimed(Protocol):
    async def __call__(self, claimed: Claimed, claim: Claim) -> Claimed: ...


class Broker:
    def __init__(
        self,
        store: PoolStore,
        *,
        clock: Clock,
        metrics: BrokerMetrics,
        queue: Queue,
        reservations: ReservationCache,
        changes: SandboxChanges,
        lease_max_sec: int,
        hold_sec: int,
        rate_limit: RateLimit | None = None,
        check_claimed: CheckClaimed | None = None,
    ) -> None:
        """`check_claimed` is called for every lease before its track receives it, and may replace
        its sandbox."""
        self._store = store
        self._queue = queue
        self._reservations = reservations
        self._changes = changes
        self._lease_max_sec = lease_max_sec
        self._hold_sec = hold_sec
        self._clock = clock
        self._metrics = metrics
        self._rate_limit = rate_limit
        self._check_claimed = check_claimed

    async def allocate(
        self,
        *,
        wait_sec: float | None = None,
        urgency: int = URGENCY,
        waiter: Waiter | None = None,
        **asked: Unpack[ClaimRequest],
    ) -> Claimed:
        """The lease of this track and key: the live one if there is one, else a new one.

        With `wait_sec` the call waits up to this long for a sandbox; a retry keeps its position. If
        the `waiter` leaves, the wait ends and nothing is leased to it. Raises
        NoSandboxesAvailableError only if no free sandbox matched, TrackRateLimitedError, and
        UnavailableError if the engine did not respond; a retry then returns the lease, if any.
        """
        started = time.perf_counter()
        claim = self._claim(**asked)
        if self._rate_limit is not None:
            await self._limit(self._rate_limit, claim.track_id)
        try:
            if wait_sec is None:
                if own := await self._reservations.of(claim):
                    claim = claim.within(own)
                claimed = await self._store.claim(claim)
                if claimed is None:
                    claimed = await self._queue.claim_without_waiting(claim)
            else:
                make_claim = partial(self._claim, **asked)
                claimed = await self._queue.wait(
                    make_claim, wait_sec=wait_sec, urgency=urgency, waiter=waiter
                )
        except UnavailableError:
            self._metrics.allocated["unavailable"].inc()
            raise
        if wait_sec is None:
            self._metrics.allocation_latency.observe(time.perf_counter() - started)
        if claimed is None:
            is_gone = waiter is not None and waiter.is_gone
            self._metrics.allocated["disconnected" if is_gone else "exhausted"].inc()
            retry_after = _RETRY_AFTER_EXHAUSTED if wait_sec is None else _RETRY_AFTER_WAITING
            raise NoSandboxesAvailableError(retry_after=retry_after)
        if self._check_claimed is not None:
            claimed = await self._checked(self._check_claimed, claimed, claim)
        self._count(claimed)
        return claimed

    async def queue(
        self, *, urgency: int = URGENCY, **asked: Unpack[ClaimRequest]
    ) -> Claimed | QueuePosition:
        """The lease without waiting, or the track's ticket with its position."""
        make_claim = partial(self._claim, **asked)
        claim = make_claim()
        if self._rate_limit is not None:
            await self._limit(self._rate_limit, claim.track_id)
        answer = await self._queue.ask(make_claim, urgency=urgency)
        if isinstance(answer, Claimed):
            if self._check_claimed is not None:
                answer = await self._checked(self._check_claimed, answer, claim)
            self._count(answer)
            return answer
        return await self._queue.position_of(answer)

    async def leave_queue(self, *, track_id: str, idempotency_key: str | None) -> None:
        """Leave the queue. Raises TicketNotFoundError if there is no ticket."""
        if not await self._queue.leave(track_id=track_id, key=idempotency_key or track_id):
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
        at_ms = int(self._clock.now() * 1000)
        length = lab_minutes and lease_seconds(lab_minutes, longest_sec=self._lease_max_sec)
        whose = (track_id, idempotency_key or track_id, at_ms // 1000)
        return _make_claim(*whose, name_prefix, track_name, at_ms, length, client, ())

    async def _limit(self, limit: RateLimit, track_id: str) -> None:
        wait = await limit.wait_for(track_id)
        if wait is not None:
            self._metrics.allocated["rate_limited"].inc()
            raise TrackRateLimitedError(retry_after=wait)

    async def _checked(self, check: CheckClaimed, claimed: Claimed, claim: Claim) -> Claimed:
        try:
            return await check(claimed, claim)
        except NoSandboxesAvailableError:
            self._metrics.allocated["exhausted"].inc()
            raise
        except UnavailableError:
            self._metrics.allocated["unavailable"].inc()
            raise

    def _count(self, claimed: Claimed) -> None:
        self._metrics.allocated["created" if claimed.is_new else "repeated"].inc()
        if not claimed.is_new:
            self._metrics.idempotent_hits.inc()

    async def mark_for_deletion(self, *, track_id: str, sandbox_id: str) -> Marked:
        """Release the sandbox. A repeat changes nothing and returns the same."""

        def decide(row: Sandbox | Tombstone | None, cause: Cause) -> Transition[Sandbox] | None:
            return decide_mark(row, track_id=track_id, cause=cause)

        with counting_failures(self._metrics.deletion_marked):
            row, changed = await self._changes.change(sandbox_id, actor("track", track_id), decide)
        self._metrics.deletion_marked.labels("marked" if changed else "repeated").inc()
        status = "deleted" if isinstance(row, Tombstone) else str(row.status)
        return Marked(sandbox_id, status, row.deletion_requested_at)

    async def get_sandbox(self, *, track_id: str, sandbox_id: str) -> Sandbox:
        """The sandbox, for its current or last track."""
        return owned_by(await self._changes.find(sandbox_id), track_id)

    async def list_sandboxes(
        self, where: SandboxFilter, *, limit: int, cursor: str | None
    ) -> Page[Sandbox]:
        return await self._store.page(where, limit=limit, cursor=cursor)

    async def get_history(
        self, sandbox_id: str, *, limit: int, cursor: str | None
    ) -> Page[LoggedEvent]:
        """The sandbox's events, newest first, even after its deletion."""
        if not is_sandbox_id(sandbox_id):
            raise SandboxNotFoundError
        query = EventQuery(subject=sandbox_id)
        page = await self._store.events.page(query, limit=limit, cursor=cursor)
        if not page.items and cursor is None and await self._changes.find(sandbox_id) is None:
            raise SandboxNotFoundError
        return page

    async def inspect_sandbox(self, sandbox_id: str) -> Sandbox:
        """The sandbox, for an operator."""
        row = await self._changes.find(sandbox_id)
        if row is None or isinstance(row, Tombstone):
            raise SandboxNotFoundError
        return row

    async def act(self, action: Action, *, sandbox_id: str, reason: str | None = None) -> Sandbox:
        """Carry out an operator's action, or raise TransitionNotAllowedError."""

        def decide(row: Sandbox | None, cause: Cause) -> Transition[Sandbox]:
            return decide_action(row, action, cause.because(reason))

        return await self._change(action, sandbox_id, decide)

    async def hold(self, *, sandbox_id: str, reason: str, until: int | None = None) -> Sandbox:
        """Hold a sandbox for inspection, whatever its state; its lease ends."""

        def decide(row: Sandbox | None, cause: Cause) -> Transition[Sandbox]:
            end = self._hold_end() if until is None else until
            return decide_hold(row, end, cause.because(reason))

        return await self._change("hold", sandbox_id, decide)

    def _hold_end(self) -> int:
        return int(self._clock.now()) + self._hold_sec

    async def _change(
        self,
        action: str,
        sandbox_id: str,
        decide: Callable[[Sandbox | None, Cause], Transition[Sandbox]],
    ) -> Sandbox:
        row, _ = await self._changes.change(
            sandbox_id,
            actor("operator"),
            lambda row, cause: decide(None if isinstance(row, Tombstone) else row, cause),
        )
        assert isinstance(row, Sandbox)  # noqa: S101 - operators change no tombstones
        logger.info(
            "an operator changed a sandbox",
            extra={"action": action, "sandbox_id": sandbox_id, "status": row.status},
        )
        return row

    async def stats(self) -> PoolCounts:
        """How many sandboxes are in each state, and when they were counted."""
        counts = await self._store.counts()
        if counts.counted_at is None:
            return replace(counts, counted_at=int(self._clock.now()))
        return counts
