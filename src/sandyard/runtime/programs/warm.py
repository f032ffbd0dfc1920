"""Warm runs, ready for the next sandbox with the same program and limits.

Their state outlives the server: after one was killed, the next one finds them, and of several that
want the same run one gets it.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from sandyard.kit.clock import Clock
from sandyard.kit.errors import InvalidError, NotFoundError, UnavailableError
from sandyard.runtime import errors
from sandyard.runtime.model import Ended, Limits, Program, RunId, Running, Starting
from sandyard.runtime.ports import Runtime

logger = logging.getLogger(__name__)

_LIFETIME_SEC = 6 * 3600
_LEAST_LEFT_SEC = 600
_HANDED_OVER_SEC = 60
_ENDED_WITHIN_SEC = 10
_REFUSED_SEC = 60


@dataclass(frozen=True, slots=True)
class WarmPool:
    """`count` runs of this program, which has no user's variables."""

    name: str
    program: Program
    limits: Limits
    count: int

    @property
    def version(self) -> str:
        """Runs of other versions are of no use any more. The network is not part of it: it is set
        when a run is handed out."""
        program, limits = self.program, replace(self.limits, max_running_sec=0)
        what = (program.source, program.archive_id, program.root, program.policy, limits)
        return hashlib.sha256(repr(what).encode()).hexdigest()[:12]

    def has(self, run_id: RunId) -> bool:
        return run_id.id == self.name and run_id.attempt.startswith(f"{self.version}-")


class WarmRecords(Protocol):
    """Which warm runs there are, and who takes them."""

    @property
    def is_shared(self) -> bool:
        """Whether other servers may hand them out: then they outlive this one."""
        ...

    async def warm_ids(self) -> Sequence[RunId]: ...

    async def taken_at(self, run_id: RunId) -> float | None: ...

    async def take(self, run_id: RunId, *, to: RunId | None = None) -> bool:
        """Whether the caller gets it: of concurrent callers, only one does. `to` is the run that it
        becomes; None if it is to be ended."""

    async def hand_over(self, run_id: RunId, to: Running, limits: Limits) -> None:
        """Make it available under another id from now on, with this record."""

    async def is_handed_over(self, run_id: RunId) -> bool:
        """Whether it is now found under another id."""


class WarmRuns:
    def __init__(self, runtime: Runtime, records: WarmRecords, clock: Clock) -> None:
        self._runtime = runtime
        self._records = records
        self._clock = clock
        self._has_kept = False
        self._refused_until: dict[str, float] = {}

    async def take(
        self, pool: WarmPool, *, to: RunId, limits: Limits, program: Program | None = None
    ) -> Running | None:
        """Take a run of the pool: it then runs under `to`, with these limits and the deadline they
        set, and with the network of this program. None if none is ready."""
        wanted = pool if program is None else replace(pool, program=program)
        for run_id in await self._records.warm_ids():
            if wanted.has(run_id):
                running = await self._take(run_id, to, limits, wanted.program)
                if running is not None:
                    return running
        return None

    async def keep(self, pools: Sequence[WarmPool]) -> int:
        """Start missing runs of the pools and end those in no pool; returns how many it started."""
        self._has_kept = True
        waiting: dict[str, list[RunId]] = {pool.name: [] for pool in pools}
        surplus = []
        for run_id in await self._records.warm_ids():
            pool = next((each for each in pools if each.has(run_id)), None)
            try:
                if not await self._is_waiting(run_id):
                    continue
            except errors.RuntimeUnavailableError as error:  # the others must not wait for it
                extra = {"action": "warm", "reason": error.reason}
                logger.warning("a warm machine could not be looked up", extra=extra)
                continue
            if pool is None or len(waiting[pool.name]) >= pool.count:
                surplus.append(run_id)
            else:
                waiting[pool.name].append(run_id)
        await self._end(surplus)
        return sum([await self._fill(pool, pool.count - len(waiting[pool.name])) for pool in pools])

    async def close(self) -> None:
        """End all waiting runs, if this process alone maintains them."""
        if self._has_kept and not self._records.is_shared:
            try:
                async with asyncio.timeout(_ENDED_WITHIN_SEC):
                    await self._end(await self._records.warm_ids())
            except (UnavailableError, TimeoutError) as error:
                # The next server finds them, or their deadline ends them.
                extra = {"action": "warm", "reason": str(error)}
                logger.warning("warm machines could not be ended", extra=extra)

    async def _take(
        self, run_id: RunId, to: RunId, limits: Limits, program: Program
    ) -> Running | None:
        if (
            await self._records.taken_at(run_id) is not None
            or not isinstance(found := await self._runtime.find(run_id), Running)
            or not _is_healthy(found)
        ):
            return None
        if not await self._records.take(run_id, to=to):
            return None
        now = self._clock.now()
        try:
            await self._runtime.set_network(run_id, program.network, program.rules)
            moved = await self._runtime.extend(
                run_id,
                deadline_at=now + limits.max_running_sec,
                keeps_memory=program.keeps_memory,
            )
        except (errors.NotRunningError, errors.RunNotFoundError):  # it has just ended
            return None
        running = Running(to, found.port, now, moved.deadline_at, moved.program)
        await self._records.hand_over(run_id, running, limits)
        return running

    async def _fill(self, pool: WarmPool, missing: int) -> int:
        """One at a time: sandboxes that users start go first. A program that does not start is
        retried later."""
        if time.monotonic() < self._refused_until.get(pool.version, 0):
            return 0
        for started in range(missing):
            if not await self._start(pool):
                self._refused_until[pool.version] = time.monotonic() + _REFUSED_SEC
                return started
        return max(0, missing)

    async def _start(self, pool: WarmPool) -> bool:
        run_id = RunId("warm", pool.name, f"{pool.version}-{secrets.token_hex(6)}")
        limits = replace(pool.limits, max_running_sec=_LIFETIME_SEC)
        try:
            await self._runtime.check(pool.program.isolation)
            running = await self._runtime.start(run_id, pool.program, limits)
        except (errors.StartFailedError, InvalidError, NotFoundError, UnavailableError) as error:
            logger.warning(
                "a warm machine could not be started",
                extra={"action": "warm", "template_id": pool.name, "reason": error.message},
            )
            with suppress(errors.StillRunningError):
                await self._runtime.forget(run_id)
            return False
        return _is_healthy(running)  # else the next look ends it

    async def _is_waiting(self, run_id: RunId) -> bool:
        """Whether it can be handed out, now or later; one that never can be is ended."""
        if (taken_at := await self._records.taken_at(run_id)) is not None:
            is_lost = self._clock.now() - taken_at > _HANDED_OVER_SEC
            if is_lost and not await self._records.is_handed_over(run_id):
                await self._forget(run_id)  # the process that took it was killed
            return False
        match await self._runtime.refresh(run_id):
            case Starting():
                return True
            case Running() as found if (
                found.deadline_at - self._clock.now() > _LEAST_LEFT_SEC and _is_healthy(found)
            ):
                return True
            case _:
                await self._end([run_id])
                return False

    async def _end(self, run_ids: Iterable[RunId]) -> None:
        """End those that nobody has taken."""
        ours = [run_id for run_id in run_ids if await self._records.take(run_id)]
        await asyncio.gather(*map(self._forget, ours))

    async def _forget(self, run_id: RunId) -> None:
        with suppress(errors.RunNotFoundError, errors.StillRunningError):
            ended = await self._runtime.stop(run_id)
            await self._runtime.forget(run_id)
            if isinstance(ended, Ended) and ended.snapshot is not None:
                await self._runtime.delete_snapshot(ended.snapshot.id)


def _is_healthy(running: Running) -> bool:
    return running.program is None or running.program.status == "running"
