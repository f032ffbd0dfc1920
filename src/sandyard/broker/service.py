"""The Broker's use cases. Each reads the clock once and asks the model what may happen."""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from sandyard.broker.errors import (
    NoSandboxesAvailableError,
    RowBusyError,
    SandboxNotFoundError,
    TrackRateLimitedError,
)
from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.model import (
    Action,
    Claim,
    Claimed,
    Sandbox,
    Status,
    Tombstone,
    decide_action,
    decide_mark,
    owned_by,
)
from sandyard.broker.ports import PoolCounts, PoolStore
from sandyard.kit.clock import Clock
from sandyard.kit.errors import ForbiddenError, NotFoundError, UnavailableError
from sandyard.kit.events import EventQuery, LoggedEvent, actor
from sandyard.kit.paging import Page
from sandyard.kit.transitions import ATTEMPTS, Cause, Transition

logger = logging.getLogger(__name__)

_SANDBOX_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
_RETRY_AFTER_EXHAUSTED = 30


@dataclass(frozen=True, slots=True)
class Marked:
    sandbox_id: str
    status: str
    deletion_requested_at: int


class RateLimit(Protocol):
    async def wait_for(self, track_id: str) -> int | None:
        """Count a call of this track; the seconds it must wait if that was one too many."""
        ...


class Unlimited:
    async def wait_for(self, track_id: str) -> int | None:  # noqa: ARG002 - nobody waits
        return None


class Broker:
    def __init__(
        self,
        store: PoolStore,
        *,
        clock: Clock,
        metrics: BrokerMetrics,
        rate_limit: RateLimit | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._rate_limit = rate_limit or Unlimited()

    async def allocate(
        self,
        *,
        track_id: str,
        idempotency_key: str | None = None,
        name_prefix: str = "",
        track_name: str | None = None,
    ) -> Claimed:
        """The lease of this track and key: the live one if there is one, else a new one.

        Raises NoSandboxesAvailableError only if no free sandbox matched, TrackRateLimitedError,
        and UnavailableError if the engine did not answer; then a retry finds what was done.
        """
        started = time.perf_counter()
        at_ms = self._now_ms()
        claim = Claim(
            track_id=track_id,
            key=idempotency_key or track_id,
            now=at_ms // 1000,
            name_prefix=name_prefix,
            track_name=track_name,
            at_ms=at_ms,
        )
        wait = await self._rate_limit.wait_for(track_id)
        if wait is not None:
            self._metrics.allocated["rate_limited"].inc()
            raise TrackRateLimitedError(retry_after=wait)
        try:
            claimed = await self._store.claim(claim)
        except UnavailableError:
            self._metrics.allocated["unavailable"].inc()
            raise
        self._metrics.allocation_latency.observe(time.perf_counter() - started)
        if claimed is None:
            self._metrics.allocated["exhausted"].inc()
            raise NoSandboxesAvailableError(retry_after=_RETRY_AFTER_EXHAUSTED)
        self._metrics.allocated["created" if claimed.is_new else "repeated"].inc()
        if not claimed.is_new:
            self._metrics.idempotent_hits.inc()
        return claimed

    async def mark_for_deletion(self, *, track_id: str, sandbox_id: str) -> Marked:
        """Give the sandbox up. Repeating it changes nothing and answers the same."""
        cause = Cause(actor("track", track_id), self._now_ms())
        try:
            row, changed = await self._change(
                sandbox_id, lambda row: decide_mark(row, track_id=track_id, cause=cause)
            )
        except (ForbiddenError, NotFoundError):
            self._metrics.deletion_marked.labels("refused").inc()
            raise
        except UnavailableError:
            self._metrics.deletion_marked.labels("unavailable").inc()
            raise
        self._metrics.deletion_marked.labels("marked" if changed else "repeated").inc()
        status = "deleted" if isinstance(row, Tombstone) else str(row.status)
        return Marked(sandbox_id, status, row.deletion_requested_at or 0)

    async def get_sandbox(self, *, track_id: str, sandbox_id: str) -> Sandbox:
        """The sandbox, for the track that has it or had it last."""
        return owned_by(await self._find(sandbox_id), track_id)

    async def list_sandboxes(
        self,
        *,
        status: Status | None,
        limit: int,
        cursor: str | None,
        track: str | None = None,
        name_prefix: str = "",
    ) -> Page[Sandbox]:
        return await self._store.page(
            status=status, track=track, name_prefix=name_prefix, limit=limit, cursor=cursor
        )

    async def get_history(
        self, sandbox_id: str, *, limit: int, cursor: str | None
    ) -> Page[LoggedEvent]:
        """What happened to the sandbox, the newest first, also after it is gone."""
        if not _SANDBOX_ID.match(sandbox_id):
            raise SandboxNotFoundError
        query = EventQuery(subject=sandbox_id)
        page = await self._store.events.page(query, limit=limit, cursor=cursor)
        if not page.items and cursor is None and await self._find(sandbox_id) is None:
            raise SandboxNotFoundError
        return page

    async def inspect_sandbox(self, sandbox_id: str) -> Sandbox:
        """The sandbox, for an operator."""
        row = await self._find(sandbox_id)
        if row is None or isinstance(row, Tombstone):
            raise SandboxNotFoundError
        return row

    async def act(self, action: Action, *, sandbox_id: str) -> Sandbox:
        """Carry out an operator's action, or raise TransitionNotAllowedError."""
        cause = Cause(actor("operator"), self._now_ms())

        def decide(row: Sandbox | Tombstone | None) -> Transition[Sandbox]:
            return decide_action(None if isinstance(row, Tombstone) else row, action, cause)

        row, _ = await self._change(sandbox_id, decide)
        assert isinstance(row, Sandbox)  # noqa: S101 - decide_action takes no tombstones
        logger.info(
            "operator changed a sandbox",
            extra={"action": action, "sandbox_id": sandbox_id, "status": row.status},
        )
        return row

    async def stats(self) -> PoolCounts:
        """How many sandboxes are in each state, and when that was counted."""
        counts = await self._store.counts()
        if counts.counted_at is None:
            return replace(counts, counted_at=int(self._clock.now()))
        return counts

    async def _change(
        self,
        sandbox_id: str,
        decide: Callable[[Sandbox | Tombstone | None], Transition[Sandbox] | None],
    ) -> tuple[Sandbox | Tombstone, bool]:
        """Read, decide and apply, again whenever somebody else was faster."""
        for _ in range(ATTEMPTS):
            row = await self._find(sandbox_id)
            transition = decide(row)
            if transition is None:
                assert row is not None  # noqa: S101 - an unknown id is an error in every decision
                return row, False
            if (await self._store.apply([transition]))[0]:
                return transition.result, True
        raise RowBusyError

    async def _find(self, sandbox_id: str) -> Sandbox | Tombstone | None:
        """What is stored under this id; nothing is under one that could never have been given."""
        return await self._store.find(sandbox_id) if _SANDBOX_ID.match(sandbox_id) else None

    def _now_ms(self) -> int:
        return int(self._clock.now() * 1000)
