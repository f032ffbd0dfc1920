"""The schedule: every job of every part, each in one process at a time."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sandyard.kit.errors import SandyardError, UnavailableError
from sandyard.kit.jobs import Job, JobRunner
from sandyard.kit.observability.log import log_context

logger = logging.getLogger(__name__)

_TICKS_PER_INTERVAL = 10
_START_WINDOW_SEC = 30
_MARGIN_SEC = 0.01
"""A job that is checked slightly too early is not due, and waits for another tick."""
_ROUTINE_SEC = 60
"""Jobs that run more often than this are logged at info only when they did something."""


class Schedule:
    """Frequently checks whether a job that other processes may run is due, so that a job whose
    process died is soon taken over."""

    def __init__(self, jobs: Sequence[tuple[JobRunner, Job[Any]]]) -> None:
        self._jobs = jobs
        self._tasks: list[asyncio.Task[None]] = []
        self._to_start = [job.name for _, job in jobs if job.at_start]
        self.started = asyncio.Event()
        """Set once every job that runs at startup has run."""

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._keep_running(runner, job)) for runner, job in self._jobs
        ]
        self._note_start()

    def _note_start(self, job: str | None = None) -> None:
        if job is not None:
            self._to_start.remove(job)
        if not self._to_start:
            self.started.set()

    async def stop(self) -> None:
        """Cancel running jobs; each releases its lease."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep_running(self, runner: JobRunner, job: Job[Any]) -> None:
        tick = min(job.interval_sec, max(1, job.interval_sec / _TICKS_PER_INTERVAL))
        wait_sec = tick
        if job.at_start:
            wait_sec = await self._run_once(runner, job, tick, _START_WINDOW_SEC)
            self._note_start(job.name)
        while True:
            await asyncio.sleep(wait_sec)
            wait_sec = await self._run_once(runner, job, tick, job.interval_sec)

    async def _run_once(
        self, runner: JobRunner, job: Job[Any], tick: float, interval_sec: float
    ) -> float:
        """Run the job if it is due; returns how long to wait. A job that this process has run is
        not due anywhere until its interval is over."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        if not await self._run(runner, job, min(job.interval_sec, interval_sec)):
            return tick
        due_at = asked_at + job.interval_sec + _MARGIN_SEC
        return max(tick, due_at - loop.time())

    async def _run(self, runner: JobRunner, job: Job[Any], interval_sec: float) -> bool:
        """Whether it was due and completed."""
        started = time.perf_counter()
        try:
            report = await runner.run_if_due(job, interval_sec=interval_sec)
            if report is not None:
                is_routine = job.interval_sec < _ROUTINE_SEC and not any(asdict(report).values())
                level = logging.DEBUG if is_routine else logging.INFO
                log_report(job.name, report, time.perf_counter() - started, level=level)
        except SandyardError as error:
            reason = error.reason if isinstance(error, UnavailableError) else None
            logger.warning(
                "job failed: %s",
                error.message,
                extra={"action": job.name, "outcome": error.code, "reason": reason},
            )
        except Exception:
            logger.exception("job failed", extra={"action": job.name, "outcome": "INTERNAL_ERROR"})
        else:
            return report is not None
        return False


def log_report(job: str, report: Any, seconds: float, *, level: int = logging.INFO) -> None:
    """One line with the report's counts, whatever they are called."""
    latency_ms = round(seconds * 1000, 1)
    fields = {"action": job, "outcome": "ok", "latency_ms": latency_ms, **asdict(report)}
    with log_context(**fields):  # `extra` rejects attribute names of a `LogRecord`
        logger.log(level, "job finished")
