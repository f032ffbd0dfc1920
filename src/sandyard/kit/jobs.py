"""Jobs that run in at most one of many processes at a time."""

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
"""The share of a lease's duration after which a holder that can't renew stops on its own."""
_WRITE_CHECK_SEC = 2.0
"""How long a successful write counts as proof that the engine accepts writes."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """Times of a job's last run."""

    started_at: float | None = None
    finished_at: float | None = None
    """When it last completed."""
    held_until: float | None = None
    """None while no process runs it."""

    def is_running(self, now: float) -> bool:
        return self.held_until is not None and now < self.held_until

    def next_at(self, *, interval_sec: float, now: float) -> float:
        """When it is next due; now, if it is overdue."""
        return now if self.started_at is None else max(now, self.started_at + interval_sec)


class JobLeases(Protocol):
    """Which process runs which job, stored in the engine that the replicas share.

    A job has at most one holder whose lease has not expired. A holder that dies without releasing
    blocks others only until its lease expires.
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
        """Acquire the job if it is free at `now` and was not started after `unless_started_after`.
        If its holder died, it is acquired regardless of when it started."""

    async def renew(self, job: str, *, holder: str, held_until: float) -> bool:
        """Extend the lease; False if this holder no longer has it."""

    async def release(self, job: str, *, holder: str, finished_at: float | None) -> None:
        """Release the job; `finished_at` is stored as its last success if it completed."""

    async def runs(self, jobs: Sequence[str]) -> Mapping[str, JobRun]:
        """Runs of those jobs that were ever acquired, as last committed."""

    async def touch(self, *, now: float) -> None:
        """Write an entry that belongs to no job; returns when it is durable."""


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
    """The same without its safety check, for operators; None if there is no such check."""

    @property
    def plain_name(self) -> str:
        """The name without the node suffix of jobs that are specific to a node."""
        return self.name.split()[0]

    def forced(self) -> "Job[Report]":
        return self if self.run_forced is None else replace(self, run=self.run_forced)


class JobRunner:
    """Runs jobs under their leases, and renews these during the run."""

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

    async def runs(self, jobs: Sequence[str]) -> Mapping[str, JobRun]:
        """When each of the jobs last ran; jobs that never did are omitted."""
        return await self._leases.runs(jobs)

    async def run(self, job: Job[Report]) -> Report:
        """Run the job to completion, after any run that is in progress in any process.

        Cancelling the caller does not stop it.
        """
        task = asyncio.create_task(self._run_locked(job))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def run_if_due(
        self, job: Job[Report], *, interval_sec: float | None = None
    ) -> Report | None:
        """Run the job unless it is running now or was started within the interval."""
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
        """Return if the engine accepts writes; raise UnavailableError if it does not."""
        now = self._clock.now()
        if not 0 <= now - self._written_at < _WRITE_CHECK_SEC:
            await self._leases.touch(now=now)
            self._written_at = now

    async def stop(self) -> None:
        """Cancel the runs that `run` started; each releases its lease."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: the caller has received it or is gone

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
        """Acquire the lease; if cancelled meanwhile, release it again."""
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
        """Renew in good time; when the lease is lost, stop the work before another process starts
        it. The lease's duration counts from the request, however late the response came."""
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
