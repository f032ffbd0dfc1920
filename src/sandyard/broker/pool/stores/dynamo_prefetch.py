"""Candidates for claims, read ahead from a lagging index and handed to one request each."""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass

from sandyard.broker.pool.model import Sandbox
from sandyard.broker.pool.stores.index_scan import Found
from sandyard.kit.wired import wired

_REMEMBER_SEC = 120.0
_SCAN_AGAIN_SEC = 0.05
_RECENT_SEC = 1.0


Scan = Callable[[int], AsyncIterator[Found]]
"""The index from where the last scan ended, once around, in pages of about this size."""


@dataclass(eq=False, slots=True)
class _Waiter:
    number: int
    answer: asyncio.Future[Sandbox | None]


@wired
class CandidatePrefetch:
    """Free rows that this process may try.

    A row is handed to one request at a time, in order of arrival. A row that this process claimed
    is never offered again, however long the index shows it; a row that it lost is offered again
    only after a consistent read shows it as free. `take` returns None only after a scan of the
    whole index that began after the call, and that found no row handed to another request.
    """

    scan: Scan
    still_free: Callable[[Collection[str]], Awaitable[set[str]]]
    size: int

    def __post_init__(self) -> None:
        self._ready: dict[str, Sandbox] = {}
        self._waiters: deque[_Waiter] = deque()
        self._handed_out: set[str] = set()
        self._claimed: dict[str, float] = {}
        self._lost: dict[str, float] = {}
        self._scanning: asyncio.Task[None] | None = None
        self._scanned_at = 0.0
        self._order = itertools.count()
        """Orders events; the clock may not advance within a step of the event loop."""
        self.was_empty = False

    @property
    def was_empty_recently(self) -> bool:
        return self.was_empty and _now() - self._scanned_at < _RECENT_SEC

    async def take(self) -> Sandbox | None:
        if self._ready and not self._waiters:
            return self._hand_out()
        waiter = _Waiter(next(self._order), asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._begin_scan()
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            if waiter.answer.done() and not waiter.answer.cancelled():
                if candidate := waiter.answer.result():
                    self.unused(candidate)
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise

    def claimed(self, candidate: Sandbox) -> None:
        _remember(self._claimed, candidate.sandbox_id)
        self._finish(candidate)

    def lost(self, candidate: Sandbox) -> None:
        """Another process has it, or may have it: it must be checked before it is offered again."""
        _remember(self._lost, candidate.sandbox_id)
        self._finish(candidate)

    def unused(self, candidate: Sandbox) -> None:
        self._ready[candidate.sandbox_id] = candidate
        self._finish(candidate)

    def forget_ready(self) -> None:
        """Drop prefetched rows; those handed to requests stay there."""
        self._ready.clear()

    def _hand_out(self) -> Sandbox:
        sandbox_id = next(iter(self._ready))
        self._handed_out.add(sandbox_id)
        return self._ready.pop(sandbox_id)

    def _finish(self, candidate: Sandbox) -> None:
        self._handed_out.discard(candidate.sandbox_id)
        self._serve()
        if self._waiters and (not self._handed_out or _now() - self._scanned_at > _SCAN_AGAIN_SEC):
            self._begin_scan()

    def _serve(self) -> None:
        while self._ready and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.answer.done():  # else its caller has disconnected
                waiter.answer.set_result(self._hand_out())

    def _begin_scan(self) -> None:
        if self._scanning is None:
            self._scanning = asyncio.create_task(self._scan_for_waiters())

    async def _scan_for_waiters(self) -> None:
        """One scan for all waiters; those who came after it began may need another."""
        began = next(self._order)
        try:
            found_ids, is_complete = await self._scan_index()
        except Exception as error:
            for waiter in self._drain():
                waiter.answer.set_exception(error)
            return
        finally:
            self._scanning = None
            self._scanned_at = _now()
        if is_complete and not found_ids:
            for waiter in self._drain(numbered_before=began):
                waiter.answer.set_result(None)
        if self._waiters and not found_ids & self._handed_out:
            self._begin_scan()

    def _drain(self, numbered_before: float = float("inf")) -> list[_Waiter]:
        waiting = [waiter for waiter in self._waiters if not waiter.answer.done()]
        drained = [waiter for waiter in waiting if waiter.number < numbered_before]
        self._waiters = deque(waiter for waiter in waiting if waiter.number >= numbered_before)
        return drained

    async def _scan_index(self) -> tuple[set[str], bool]:
        """Serve waiters and prefetch.

        Returns the ids found that are handed to requests, since they may come back unused; and
        whether the scan covered the whole index.
        """
        _forget_old(self._claimed)
        _forget_old(self._lost)
        found_ids: set[str] = set()
        doubtful: dict[str, Sandbox] = {}
        is_complete = True
        async for found in self.scan(max(self.size, len(self._waiters))):
            for candidate in found.rows:
                if not found.is_own and len(self._ready) >= len(self._waiters):
                    break
                self._sort_in(candidate, found_ids, doubtful)
            self._serve()
            if not self._waiters and (len(self._ready) >= self.size or not found.is_own):
                is_complete = False
                break
        if self._waiters and doubtful:
            for sandbox_id in await self.still_free(doubtful.keys()):
                self._lost.pop(sandbox_id, None)
                self._ready[sandbox_id] = doubtful[sandbox_id]
                found_ids.add(sandbox_id)
            self._serve()
        self.was_empty = not self._ready and not found_ids
        return found_ids & self._handed_out, is_complete

    def _sort_in(
        self, candidate: Sandbox, found_ids: set[str], doubtful: dict[str, Sandbox]
    ) -> None:
        sandbox_id = candidate.sandbox_id
        if sandbox_id in self._claimed:
            return
        if sandbox_id in self._lost:
            doubtful[sandbox_id] = candidate
            return
        found_ids.add(sandbox_id)
        if sandbox_id not in self._handed_out:
            self._ready[sandbox_id] = candidate


def _remember(memory: dict[str, float], sandbox_id: str) -> None:
    """Record it as the newest; a dict keeps insertion order."""
    memory.pop(sandbox_id, None)
    memory[sandbox_id] = _now()


def _forget_old(memory: dict[str, float]) -> None:
    horizon = _now() - _REMEMBER_SEC
    while memory and memory[oldest := next(iter(memory))] < horizon:
        del memory[oldest]


def _now() -> float:
    return asyncio.get_running_loop().time()
