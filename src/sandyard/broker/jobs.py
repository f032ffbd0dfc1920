"""All jobs of the Broker, under their leases."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from sandyard.broker.history.service import SampleReport
from sandyard.broker.pool.cleanup import CleanupReport
from sandyard.broker.pool.expiry import ExpiryReport
from sandyard.broker.pool.holds import HoldReport
from sandyard.broker.pool.sync import SyncReport
from sandyard.broker.queue.service import QueueReport
from sandyard.broker.reservations.service import ReservationReport
from sandyard.kit.changes.pruning import PruneReport
from sandyard.kit.jobs import Job, JobRunner


@dataclass(frozen=True, slots=True)
class BrokerJobs:
    """The Broker's jobs under their leases, for the schedule and for operators alike."""

    runner: JobRunner
    sync_job: Job[SyncReport]
    cleanup_job: Job[CleanupReport]
    expiry_job: Job[ExpiryReport]
    queue_job: Job[QueueReport]
    reservations_job: Job[ReservationReport]
    holds_job: Job[HoldReport]
    probe_job: Job[Any]
    pool_job: Job[Any]
    deliver_job: Job[Any]
    client_leases_job: Job[Any]
    history_job: Job[SampleReport]
    events_job: Job[PruneReport]

    @property
    def all(self) -> Sequence[Job[Any]]:
        return [getattr(self, each.name) for each in fields(self) if each.name != "runner"]

    async def sync(self, *, force: bool = False) -> SyncReport:
        return await self.runner.run(self.sync_job.forced() if force else self.sync_job)

    async def cleanup(self) -> CleanupReport:
        return await self.runner.run(self.cleanup_job)

    async def expire(self) -> ExpiryReport:
        return await self.runner.run(self.expiry_job)
