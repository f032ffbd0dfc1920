"""The state of the jobs and the provider, for operators."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from sandyard.broker.history.errors import JobNotFoundError
from sandyard.broker.pool.ports import PoolStore
from sandyard.kit.circuits import CircuitState
from sandyard.kit.clock import Clock
from sandyard.kit.jobs import Job, JobRun, JobRunner
from sandyard.kit.wired import wired


@dataclass(frozen=True, slots=True)
class JobStatus:
    name: str
    does: str
    interval_sec: float
    is_running: bool
    started_at: float | None
    finished_at: float | None
    next_run_at: float | None
    """None while it runs."""


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    address: str
    dialect: str
    circuit: str
    """The state of the circuit breaker."""
    failures: int
    opened_at: float | None
    retry_at: float | None
    """When an open circuit lets the next call through."""
    sync_failures: int
    """Consecutive failures."""
    synced_at: float | None


class WatchedProvider(Protocol):
    async def circuit(self) -> CircuitState: ...


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
    provider: WatchedProvider
    facts: ProviderFacts

    async def list_jobs(self) -> Sequence[JobStatus]:
        now = self.clock.now()
        runs = await self.runner.runs(list(self.jobs))
        return [self._status(job, runs.get(name, JobRun()), now) for name, job in self.jobs.items()]

    def _status(self, job: Job[Any], run: JobRun, now: float) -> JobStatus:
        is_running = run.is_running(now)
        due_at = run.next_at(interval_sec=job.interval_sec, now=now)
        return JobStatus(
            name=job.name,
            does=self.does[job.name],
            interval_sec=job.interval_sec,
            is_running=is_running,
            started_at=run.started_at,
            finished_at=run.finished_at,
            next_run_at=None if is_running else due_at,
        )

    async def run_job(self, name: str) -> Mapping[str, int]:
        """Wait for a run in progress anywhere, then run the job to its end; returns its counts.
        Raises JobNotFoundError."""
        job = self.jobs.get(name)
        if job is None:
            raise JobNotFoundError
        report = await self.runner.run(job)
        return {field: int(count) for field, count in asdict(report).items()}

    async def get_provider(self) -> ProviderStatus:
        circuit = await self.provider.circuit()
        autoscaler = await self.store.find_autoscaler()
        sync = (await self.runner.runs(["sync"])).get("sync", JobRun())
        retry_at = None
        if circuit.state != "closed" and circuit.opened_at is not None:
            retry_at = circuit.opened_at + self.facts.circuit_timeout_sec
        return ProviderStatus(
            address=self.facts.address,
            dialect=self.facts.dialect,
            circuit=circuit.state,
            failures=circuit.failures,
            opened_at=circuit.opened_at,
            retry_at=retry_at,
            sync_failures=0 if autoscaler is None else autoscaler.sync_failures,
            synced_at=sync.finished_at,
        )
