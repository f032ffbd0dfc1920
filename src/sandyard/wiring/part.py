"""A part that is wired and runs; what is known of it before is its spec."""

import asyncio
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fastapi import APIRouter

from sandyard.kit.changes.events import EventListing
from sandyard.kit.errors import UnavailableError
from sandyard.kit.jobs import Job, JobRunner
from sandyard.kit.observability.metrics import Gauges, Labelled
from sandyard.kit.sql.migrations import EmbeddedDatabase

_JOB_LABELS = ("part", "job")
_CHECK_SEC = 2


async def find_trouble(part: "Part") -> UnavailableError | None:
    """Why the part is not ready; None if its engine responds and accepts writes."""
    try:
        async with asyncio.timeout(_CHECK_SEC):
            await part.check()
            await part.check_writes()
    except UnavailableError as error:
        return error
    except TimeoutError:
        return UnavailableError("It does not respond.")
    return None


@dataclass(slots=True, kw_only=True)
class Part(ABC):
    """One part of Sandyard, wired to its engine, as the process that runs it knows it."""

    name: ClassVar[str]
    engine: str
    """The engine's name, for people."""
    routers: Sequence[APIRouter]
    """The part's endpoints, busiest first."""
    runner: JobRunner
    """Runs the part's jobs."""
    schedule: Sequence[Job[Any]]
    """The jobs that run on a schedule."""
    events: EventListing | None = None
    """The events of the part's entities; None if another part lists them."""
    embedded: EmbeddedDatabase | None = None
    """The SQLite file, if this process uses the engine exclusively."""

    async def prepare(self) -> None:
        """Upgrade an embedded engine to the newest schema and release the jobs of a process that
        died; raise UnavailableError if a shared one is not usable."""
        if self.embedded is not None:
            await self.embedded.prepare()
        await self.check()

    async def start(self) -> None:  # noqa: B027 - optional hook
        """Start what only a serving process needs; works without the engine."""

    def drain(self) -> None:  # noqa: B027 - optional hook
        """The process is stopping: respond now to calls that wait for something."""

    @abstractmethod
    async def check(self) -> None:
        """Return if the engine responds and is usable; else raise UnavailableError."""

    async def check_writes(self) -> None:
        """Return if the engine accepts writes; else raise UnavailableError."""
        await self.runner.check_writes()

    async def gauges(self) -> Gauges:
        """The part's gauges on `/metrics`, read from its engine now."""
        return {**await self.own_gauges(), **await self._job_successes()}

    def local_gauges(self) -> Gauges:
        """The part's gauges that this process knows, also while the engine is down."""
        return {**self._job_intervals(), **self._disk_gauges()}

    async def own_gauges(self) -> Gauges:
        return {}

    async def _job_successes(self) -> Gauges:
        jobs = {job.name: (self.name, job.plain_name) for job in self.schedule}
        runs = await self.runner.runs(list(jobs))
        finished = {jobs[name]: run.finished_at for name, run in runs.items()}
        ended = Labelled(_JOB_LABELS, {job: at for job, at in finished.items() if at is not None})
        about = "When a job last came to its end"
        return {"sandyard_job_last_success_timestamp_seconds": (about, ended)}

    def _job_intervals(self) -> Gauges:
        every: dict[tuple[str, ...], float] = {
            (self.name, job.plain_name): job.interval_sec for job in self.schedule
        }
        about = "How often a job runs"
        return {"sandyard_job_interval_seconds": (about, Labelled(_JOB_LABELS, every))}

    def _disk_gauges(self) -> Gauges:
        folder = None if self.embedded is None else self.embedded.database.folder
        if folder is None:
            return {}
        disk = shutil.disk_usage(folder)
        return {
            "sandyard_disk_free_bytes": ("Free space where the databases are", disk.free),
            "sandyard_disk_size_bytes": ("Size of the disk where the databases are", disk.total),
        }

    async def close(self) -> None:
        await self.runner.stop()
        await self.close_engine()

    @abstractmethod
    async def close_engine(self) -> None:
        """Close everything opened for the part; its jobs have ended."""
