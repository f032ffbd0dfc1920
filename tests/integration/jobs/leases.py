"""Work under a lease, and leases that can be cut off."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import sqlalchemy as sa

from sandyard.broker.stores import tables
from sandyard.broker.stores.dynamo_table import PoolTable
from sandyard.kit.dynamo.job_leases import DynamoJobLeases
from sandyard.kit.errors import UnavailableError
from sandyard.kit.jobs import Job, JobLeases, JobRunner
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.job_leases import SqlJobLeases
from tests.fakes.pool.store import HeldJob, MemoryJobLeases
from tests.support.clocks import ManualClock

NAME = "sync"
LEASE_SEC = 60.0
DEADLINE_SEC = 60


@dataclass
class Work:
    """A job's work that goes on until its gate is opened, and knows how often it overlapped."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    started: int = 0
    finished: int = 0
    broken_off: int = 0
    at_once: int = 0
    most_at_once: int = 0

    async def __call__(self) -> int:
        self.started += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.gate.wait()
            await asyncio.sleep(0.01)  # long enough that a run beside it would be seen
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        finally:
            self.at_once -= 1
        self.finished += 1
        return self.finished

    def job(self, *, interval_sec: float = 600) -> Job[int]:
        return Job(NAME, interval_sec, self)


@dataclass
class Row:
    """What the engine holds about the job."""

    holder: str | None = None
    held_until: float | None = None
    started_at: float | None = None
    finished_at: float | None = None


class Leases:
    """The real leases of an engine, with a look at what they hold."""

    def __init__(self, real: JobLeases, look: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        self._real = real
        self._look = look
        self.release = real.release
        self.runs = real.runs
        self.touch = real.touch

    @classmethod
    def like(cls, leases: "Leases") -> Self:
        return cls(leases._real, leases._look)

    async def acquire(
        self,
        job: str,
        *,
        holder: str,
        now: float,
        held_until: float,
        unless_started_after: float | None = None,
    ) -> bool:
        return await self._real.acquire(
            job,
            holder=holder,
            now=now,
            held_until=held_until,
            unless_started_after=unless_started_after,
        )

    async def renew(self, job: str, *, holder: str, held_until: float) -> bool:
        return await self._real.renew(job, holder=holder, held_until=held_until)

    async def take(self, holder: str, *, now: float, held_until: float | None = None) -> bool:
        return await self.acquire(
            NAME,
            holder=holder,
            now=now,
            held_until=now + LEASE_SEC if held_until is None else held_until,
        )

    async def row(self) -> Row:
        found = await self._look()
        return Row(**{name: found.get(name) for name in Row.__dataclass_fields__})


class CutOffLeases(Leases):
    """Leases whose engine does not answer renewals any more."""

    renewals = 0

    async def renew(self, job: str, *, holder: str, held_until: float) -> bool:  # noqa: ARG002
        self.renewals += 1
        raise UnavailableError


class LateLeases(CutOffLeases):
    """Leases whose engine takes its time to say that a job is taken, and renews none."""

    clock: ManualClock
    late_sec: float

    async def acquire(self, job: str, **asked: Any) -> bool:
        taken = await super().acquire(job, **asked)
        self.clock.advance(self.late_sec)
        return taken


class HangingLeases(Leases):
    """Leases whose renewals never come back."""

    async def renew(self, job: str, *, holder: str, held_until: float) -> bool:  # noqa: ARG002
        await asyncio.sleep(3600)
        return True


MakeRunner = Callable[..., JobRunner]


def sql_leases(database: Database) -> Leases:
    statement = sa.select(tables.jobs).where(tables.jobs.c.job == NAME)

    def select(connection: sa.Connection) -> Mapping[str, Any]:
        return dict(connection.execute(statement).mappings().one())

    return Leases(SqlJobLeases(database, tables.jobs), lambda: database.read(select))


def dynamo_leases(pool: PoolTable) -> Leases:
    async def look() -> Mapping[str, Any]:
        item = await pool.table.get({"PK": f"JOB#{NAME}", "SK": "META"})
        assert item is not None
        return item

    return Leases(DynamoJobLeases(pool.table), look)


async def run_if_due(runner: JobRunner, job: Job[int]) -> int | None:
    return await runner.run_if_due(job)


async def within_deadline(result: Awaitable[Any]) -> Any:
    async with asyncio.timeout(DEADLINE_SEC):
        return await result


def memory_leases() -> Leases:
    """Those of the simulation."""
    jobs: dict[str, HeldJob] = {}

    async def look() -> Mapping[str, Any]:
        held = jobs[NAME]
        return {"holder": held.holder, **asdict(held.run)}

    return Leases(MemoryJobLeases(jobs), look)
