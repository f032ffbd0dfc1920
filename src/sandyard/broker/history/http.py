"""Calls of operators that watch the pool: its last day, its jobs and its provider."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from sandyard.broker.clients.guards import AdminGuard
from sandyard.broker.history.errors import JobNotFoundError
from sandyard.broker.history.model import MINUTE_SEC, PoolSample
from sandyard.broker.history.service import History, PoolHistory
from sandyard.broker.http import operator_routes
from sandyard.broker.pool.http.schemas import STATE_COUNTS
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.provider.client import HttpProvider
from sandyard.broker.provider.model import Autoscaler
from sandyard.kit.clock import Clock
from sandyard.kit.http.schemas import Documented, eg, example
from sandyard.kit.jobs import Job, JobRun, JobRunner
from sandyard.kit.wired import wired

_SAMPLE = {"at": 1_793_350_800, **STATE_COUNTS, "waiting": 0, "leases": 12}
_JOB = {
    "name": "sync",
    "does": "compare the pool with the provider's list",
    "interval_sec": 600,
    "is_running": False,
    "started_at": 1_793_350_200,
    "finished_at": 1_793_350_203,
    "next_run_at": 1_793_350_800,
}


class PoolSampleAnswer(BaseModel):
    model_config = example(**_SAMPLE)

    at: int = Field(description="Unix seconds; start of this step")
    available: int
    reserved: int
    allocated: int
    pending_deletion: int
    stale: int
    held: int
    deletion_failed: int
    waiting: int = Field(description="Waiting tickets")
    leases: int = Field(description="New leases")

    @classmethod
    def of(cls, sample: PoolSample) -> Self:
        times = {"at": sample.at, "waiting": sample.waiting, "leases": sample.leases}
        return cls.model_validate({**sample.counts, **times})


class PoolHistoryAnswer(Documented):
    samples: list[PoolSampleAnswer] = eg(
        [_SAMPLE], description="Oldest first; steps in which no server ran are missing"
    )
    leases_per_minute: float | None = eg(
        2.4, description="Over the last 15 minutes; null without samples"
    )
    exhausted_in_sec: int | None = eg(
        3000,
        description="Time to exhaustion at the rate of the last 15 minutes; null if the pool does "
        "not shrink, or lasts for more than a week",
    )

    @classmethod
    def of(cls, history: PoolHistory) -> Self:
        return cls(
            samples=[PoolSampleAnswer.of(each) for each in history.samples],
            leases_per_minute=history.outlook.leases_per_minute,
            exhausted_in_sec=history.outlook.exhausted_in_sec,
        )


class PoolJobAnswer(Documented):
    name: str = eg("sync")
    does: str = eg("compare the pool with the provider's list")
    interval_sec: float = eg(600)
    is_running: bool = eg(False)
    started_at: float | None = eg(1_793_350_200, description="Unix seconds; when it last started")
    finished_at: float | None = eg(1_793_350_203, description="When it last ended")
    next_run_at: float | None = eg(1_793_350_800, description="null while it runs")


class PoolJobsAnswer(Documented):
    jobs: list[PoolJobAnswer] = eg([_JOB])


class PoolJobRunAnswer(Documented):
    job: str = eg("expiry")
    counts: Mapping[str, int] = eg({"expired": 1}, description="Its counts")


class PoolProviderAnswer(Documented):
    address: str = eg("https://csp.example.com")
    dialect: str = eg("generic")
    circuit: Literal["closed", "opened", "half-opened"] = eg(
        "closed", description="opened: it is not called after repeated failures"
    )
    failures: int = eg(0, description="Consecutive failed calls")
    opened_at: float | None
    retry_at: float | None = Field(description="When it will be called again")
    sync_failures: int = eg(0, description="Consecutive failed syncs")
    synced_at: float | None = eg(1_793_350_203, description="When a sync last completed")


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """The provider's settings."""

    address: str
    dialect: str
    circuit_timeout_sec: float


@wired
class Monitor:
    """`jobs` are the Broker's jobs by name, and `does` describes each."""

    store: PoolStore
    clock: Clock
    runner: JobRunner
    jobs: Mapping[str, Job[Any]]
    does: Mapping[str, str]
    provider: HttpProvider
    facts: ProviderFacts

    async def list_jobs(self) -> PoolJobsAnswer:
        now, runs = self.clock.now(), await self.runner.runs(list(self.jobs))
        known = [(job, runs.get(name, JobRun())) for name, job in self.jobs.items()]
        return PoolJobsAnswer(jobs=[self._job(job, run, now) for job, run in known])

    def _job(self, job: Job[Any], run: JobRun, now: float) -> PoolJobAnswer:
        is_running = run.is_running(now)
        due_at = run.next_at(interval_sec=job.interval_sec, now=now)
        return PoolJobAnswer(
            name=job.name,
            does=self.does[job.name],
            interval_sec=job.interval_sec,
            is_running=is_running,
            started_at=run.started_at,
            finished_at=run.finished_at,
            next_run_at=None if is_running else due_at,
        )

    async def run_job(self, name: str) -> PoolJobRunAnswer:
        """Wait for a run in progress anywhere, then run the job to its end."""
        if name not in self.jobs:
            raise JobNotFoundError
        report = await self.runner.run(self.jobs[name])
        counts = {field: int(count) for field, count in asdict(report).items()}
        return PoolJobRunAnswer(job=name, counts=counts)

    async def get_provider(self) -> PoolProviderAnswer:
        circuit = await self.provider.circuit()
        autoscaler = await self.store.find_single(Autoscaler)
        sync = (await self.runner.runs(["sync"])).get("sync", JobRun())
        retry_at = None
        if circuit.state != "closed" and circuit.opened_at is not None:
            retry_at = circuit.opened_at + self.facts.circuit_timeout_sec
        return PoolProviderAnswer(
            address=self.facts.address,
            dialect=self.facts.dialect,
            circuit=circuit.state,
            failures=circuit.failures,
            opened_at=circuit.opened_at,
            retry_at=retry_at,
            sync_failures=0 if autoscaler is None else autoscaler.sync_failures,
            synced_at=sync.finished_at,
        )


def create_monitor_router(
    monitor: Monitor, history: History, guard: AdminGuard, *, prefix: str
) -> APIRouter:
    routes = operator_routes(f"{prefix}/admin", guard.require)

    @routes.get("/history", "Get the pool's history")
    async def get_pool_history(
        hours: Annotated[int, Query(ge=1, le=24, description="How far back")] = 24,
        step_minutes: Annotated[
            int, Query(ge=1, le=60, description="Interval between two samples")
        ] = 5,
    ) -> PoolHistoryAnswer:
        """Sampled once a minute and kept for a day: sandboxes by state, new leases, and the time to
        exhaustion at the current rate."""
        step_sec = step_minutes * MINUTE_SEC
        return PoolHistoryAnswer.of(await history.read(hours=hours, step_sec=step_sec))

    @routes.get("/jobs", "List the Broker's jobs")
    async def list_pool_jobs() -> PoolJobsAnswer:
        """When each job last ran and will run next, on any server."""
        return await monitor.list_jobs()

    @routes.post("/jobs/{job}/run", "Run a job now", 404, 409)
    async def run_pool_job(
        job: Annotated[str, Path(description="The job's name, from the list of jobs")],
    ) -> PoolJobRunAnswer:
        """Waits for a run in progress, then runs the job to its end."""
        return await monitor.run_job(job)

    @routes.get("/provider", "Get the provider's state")
    async def get_pool_provider() -> PoolProviderAnswer:
        """The state of the circuit breaker, and the last sync."""
        return await monitor.get_provider()

    return routes.router
