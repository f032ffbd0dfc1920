"""The one schedule: every job of every part, each in one process at a time."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sandyard.kit.errors import SandyardError, UnavailableError
from sandyard.kit.jobs import Job, JobRunner

logger = logging.getLogger(__name__)

_TICKS_PER_INTERVAL = 10
_START_WINDOW_SEC = 30
_ROUTINE_SEC = 60
"""Jobs that run more often than this are told of only when they did something."""


class Schedule:
    """Asks often whether a job is due, so that one whose process died is taken up soon."""

    def __init__(self, jobs: Sequence[tuple[JobRunner, Job[Any]]]) -> None:
        self._jobs = jobs
        self._tasks: list[asyncio.Task[None]] = []
        self.started = asyncio.Event()
        """Set once every job that runs at the start has done so."""

    def start(self) -> None:
        first = [asyncio.Event() for _, job in self._jobs if job.at_start]
        waiting = iter(first)
        self._tasks = [
            asyncio.create_task(
                self._keep_running(runner, job, next(waiting) if job.at_start else None)
            )
            for runner, job in self._jobs
        ]
        self._tasks.append(asyncio.create_task(self._tell_started(first)))

    async def _tell_started(self, first: Sequence[asyncio.Event]) -> None:
        for event in first:
            await event.wait()
        self.started.set()

    async def stop(self) -> None:
        """Break off what runs; each job gives its lease up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep_running(
        self, runner: JobRunner, job: Job[Any], first: asyncio.Event | None
    ) -> None:
        if first is not None:
            await self._run(runner, job, min(job.interval_sec, _START_WINDOW_SEC))
            first.set()
        while True:
            await asyncio.sleep(
                min(job.interval_sec, max(1, job.interval_sec / _TICKS_PER_INTERVAL))
            )
            await self._run(runner, job, job.interval_sec)

    async def _run(self, runner: JobRunner, job: Job[Any], interval_sec: float) -> None:
        started = time.perf_counter()
        try:
            report = await runner.run_if_due(job, interval_sec=interval_sec)
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
            if report is not None:
                is_routine = job.interval_sec < _ROUTINE_SEC and not any(asdict(report).values())
                level = logging.DEBUG if is_routine else logging.INFO
                log_report(job.name, report, time.perf_counter() - started, level=level)


def log_report(job: str, report: Any, seconds: float, *, level: int = logging.INFO) -> None:
    logger.log(
        level,
        "job finished",
        extra={
            "action": job,
            "outcome": "ok",
            "latency_ms": round(seconds * 1000, 1),
            **asdict(report),
        },
    )
