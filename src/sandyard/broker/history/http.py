"""Calls of operators that watch the pool: its last day, its jobs and its provider."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from sandyard.broker.clients.guards import AdminGuard
from sandyard.broker.history.model import MINUTE_SEC, PoolSample
from sandyard.broker.history.monitor import Monitor
from sandyard.broker.history.service import History, PoolHistory
from sandyard.broker.http import operator_routes
from sandyard.broker.pool.http.schemas import STATE_COUNTS
from sandyard.kit.http.schemas import AttributesAnswer, Documented, eg, example

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


class PoolJobAnswer(AttributesAnswer):
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


class PoolProviderAnswer(AttributesAnswer):
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
        jobs = await monitor.list_jobs()
        return PoolJobsAnswer(jobs=[PoolJobAnswer.of(each) for each in jobs])

    @routes.post("/jobs/{job}/run", "Run a job now", 404, 409)
    async def run_pool_job(
        job: Annotated[str, Path(description="The job's name, from the list of jobs")],
    ) -> PoolJobRunAnswer:
        """Waits for a run in progress, then runs the job to its end."""
        return PoolJobRunAnswer(job=job, counts=await monitor.run_job(job))

    @routes.get("/provider", "Get the provider's state")
    async def get_pool_provider() -> PoolProviderAnswer:
        """The state of the circuit breaker, and the last sync."""
        return PoolProviderAnswer.of(await monitor.get_provider())

    return routes.router
