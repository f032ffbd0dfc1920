"""Jobs that run in one process at a time, whichever of many that is."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from sandyard.kit.clock import Clock
from sandyard.kit.errors import UnavailableError

Report = TypeVar("Report")
logger = logging.getLogger(__name__)

_SAFE_SHARE = 0.8
"""The share of a lease's time after which its holder, unable to renew, stops of its own accord."""
_WRITE_CHECK_SEC = 2.0
"""How long an engine that took a write is trusted to take the next."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """When a job last ran, as far as it did."""

    started_at: float | None = None
    finished_at: float | None = None
    """When it last came to its end."""
    held_until: float | None = None
    """None while nobody runs it."""

    def is_running(self, now: float) -> bool:
        return self.held_until is not None and now < self.held_until

    def next_at(self, *, interval_sec: float, now: float) -> float:
        """When it is due; now, if it should have run already."""
        return now if self.started_at is None else max(now, self.started_at + interval_sec)


class JobLeases(Protocol):
    """Who runs which job, kept in the engine that the replicas share.

    A job has at most one holder whose time is not over. A holder that dies without releasing
    keeps others out no longer than the time it was given.
    """

    async def acquire(
        self,
        job: str,
        *,
        holder: str,
        now: float,
        held_until: float,
        unless_started_after: float | None = None,
    ) -> bool:
        """Take the job if nobody holds it at `now`, and it was not started after that time. One
        whose holder died is taken whenever that was."""
        ...

    async def renew(self, job: str, *, holder: str, held_until: float) -> bool:
        """Keep a job longer; False if it is not this holder's any more."""
        ...

    async def release(self, job: str, *, holder: str, finished_at: float | None) -> None:
        """Give the job up; `finished_at` is kept as its last success if it came to its end."""
        ...

    async def finished(self, jobs: Sequence[str]) -> Mapping[str, float]:
        """When each of the jobs last came to its end."""
        ...

    async def runs(self, jobs: Sequence[str]) -> Mapping[str, JobRun]:
        """Of each of the jobs that was ever taken, as last committed."""
        ...

    async def touch(self, *, now: float) -> None:
        """Write an entry that no job has; returns when that is durable."""
        ...


class JobLostError(UnavailableError):
    """Another process took over this job while it ran. Its counts are in that process's log."""

    code = "JOB_LEASE_LOST"


@dataclass(frozen=True, slots=True)
class Job(Generic[Report]):
    name: str
    interval_sec: float
    run: Callable[[], Awaitable[Report]]
    at_start: bool = False
    run_forced: Callable[[], Awaitable[Report]] | None = None
    """The same without its safety check, for operators; None if it has none."""

    @property
    def plain_name(self) -> str:
        """The name without the node, which the job of one node has after it."""
        return self.name.split()[0]

    def forced(self) -> "Job[Report]":
        return self if self.run_forced is None else replace(self, run=self.run_forced)


class JobRunner:
    """Runs jobs under their leases and keeps renewing while they last."""

    _POLL_SEC = 0.1

    def __init__(
        self, leases: JobLeases, *, clock: Clock, holder: str, lease_sec: float = 60
    ) -> None:
        self._leases = leases
        self._clock = clock
        self._holder = holder
        self._lease_sec = lease_sec
        self._written_at = float("-inf")
        self._locks: dict[str, asyncio.Lock] = {}
        self._under_way: set[asyncio.Task[Any]] = set()

    async def finished(self, jobs: Sequence[str]) -> Mapping[str, float]:
        """When each of the jobs last came to its end; those that never did are not there."""
        return await self._leases.finished(jobs)

    async def runs(self, jobs: Sequence[str]) -> Mapping[str, JobRun]:
        """When each of the jobs last ran; those that never did are not there."""
        return await self._leases.runs(jobs)

    async def run(self, job: Job[Report]) -> Report:
        """Run the job to its end, after any run of it that is under way anywhere.

        A caller that goes away does not stop it.
        """
        task = asyncio.create_task(self._run_locked(job))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def run_if_due(
        self, job: Job[Report], *, interval_sec: float | None = None
    ) -> Report | None:
        """Run the job unless somebody runs it now or started it within the interval."""
        interval = job.interval_sec if interval_sec is None else interval_sec
        lock = self._locks.setdefault(job.name, asyncio.Lock())
        if lock.locked():
            return None
        async with lock:
            asked_at = self._clock.now()
            if not await self._acquire(job, asked_at, unless_started_after=asked_at - interval):
                return None
            return await self._run_held(job, asked_at)

    async def check_writes(self) -> None:
        """Return if the engine takes writes; raise UnavailableError if it does not."""
        now = self._clock.now()
        if not 0 <= now - self._written_at < _WRITE_CHECK_SEC:
            await self._leases.touch(now=now)
            self._written_at = now

    async def stop(self) -> None:
        """Break off the runs that `run` started; each gives its lease up."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # its caller has been told of it, or has gone away

    async def _run_locked(self, job: Job[Report]) -> Report:
        async with self._locks.setdefault(job.name, asyncio.Lock()):
            asked_at = self._clock.now()
            while not await self._acquire(job, asked_at):
                await asyncio.sleep(self._POLL_SEC)
                asked_at = self._clock.now()
            return await self._run_held(job, asked_at)

    async def _acquire(
        self, job: Job[Any], now: float, *, unless_started_after: float | None = None
    ) -> bool:
        """Take the lease; one that is taken while we are broken off is given up again."""
        taking = asyncio.ensure_future(
            self._leases.acquire(
                job.name,
                holder=self._holder,
                now=now,
                held_until=now + self._lease_sec,
                unless_started_after=unless_started_after,
            )
        )
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            with suppress(UnavailableError):
                if await taking:
                    await self._leases.release(job.name, holder=self._holder, finished_at=None)
            raise

    async def _run_held(self, job: Job[Report], asked_at: float) -> Report:
        work = asyncio.ensure_future(job.run())
        heartbeat = asyncio.create_task(self._keep(job, work, asked_at))
        finished_at: float | None = None
        try:
            report = await work
            finished_at = self._clock.now()
        except asyncio.CancelledError:
            if heartbeat.done() and not heartbeat.cancelled():
                raise JobLostError from None
            work.cancel()
            raise
        finally:
            heartbeat.cancel()
            with suppress(UnavailableError):
                await asyncio.shield(
                    self._leases.release(job.name, holder=self._holder, finished_at=finished_at)
                )
        return report

    async def _keep(self, job: Job[Any], work: "asyncio.Future[Any]", asked_at: float) -> None:
        """Renew in good time; when the lease is lost, stop the work before another's begins. Its
        time counts from when it was asked for, however late the answer came."""
        safe_for = self._lease_sec * _SAFE_SHARE
        safe_until = asked_at + safe_for
        while (left := safe_until - self._clock.now()) > 0:
            await asyncio.sleep(min(self._lease_sec / 3, left))
            renewed_at = self._clock.now()
            try:
                async with asyncio.timeout(max(0, safe_until - renewed_at)):
                    if not await self._leases.renew(
                        job.name, holder=self._holder, held_until=renewed_at + self._lease_sec
                    ):
                        break
                safe_until = renewed_at + safe_for
            except (UnavailableError, TimeoutError):
                logger.warning(
                    "the lease of a running job could not be renewed", extra={"job": job.name}
                )
        work.cancel()
