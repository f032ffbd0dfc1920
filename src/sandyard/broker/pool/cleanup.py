"""The job `cleanup`: deletes released sandboxes at the provider."""

import asyncio
import logging
import random
import time
from dataclasses import dataclass

from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool import provider_model
from sandyard.broker.pool.model import Sandbox, Status
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.provider.errors import CircuitOpenError, ProviderUnavailableError
from sandyard.broker.provider.ports import Provider
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.tasks import for_each
from sandyard.kit.wired import wired

logger = logging.getLogger(__name__)

_CLEANUP = actor("job", "cleanup")


@dataclass(slots=True)
class CleanupReport:
    deleted: int = 0
    retried: int = 0
    failed: int = 0
    postponed: int = 0


@wired
class Cleanup:
    """Deletes released sandboxes at the provider, a bounded number at a time."""

    store: PoolStore
    provider: Provider
    clock: Clock
    metrics: BrokerMetrics
    policy: provider_model.DeletionPolicy
    parallel: int
    randomness: random.Random

    async def run(self) -> CleanupReport:
        """Try every due deletion once; stop early while the circuit is open."""
        started = time.perf_counter()
        report, slots = CleanupReport(), asyncio.Semaphore(self.parallel)
        now = int(self.clock.now())
        async for due in self.store.deletable(now=now):
            await for_each(due, lambda sandbox: self._delete(sandbox, report), slots=slots)
            if report.postponed:
                break
        self.metrics.cleanup_duration.observe(time.perf_counter() - started)
        return report

    async def _delete(self, sandbox: Sandbox, report: CleanupReport) -> None:
        try:
            await self.provider.delete_sandbox(sandbox.external_id)
        except CircuitOpenError:
            report.postponed += 1
        except ProviderUnavailableError as error:
            await self._record_failure(sandbox, error, report)
        else:
            deleted = provider_model.decide_deleted(sandbox, Cause.by(_CLEANUP, self.clock))
            if (await self.store.apply([deleted]))[0]:
                report.deleted += 1
                self.metrics.cleanup.labels("deleted").inc()

    async def _record_failure(
        self, sandbox: Sandbox, error: ProviderUnavailableError, report: CleanupReport
    ) -> None:
        cause = Cause.by(_CLEANUP, self.clock).because(error.reason or error.message)
        failed = provider_model.decide_failed_deletion(
            sandbox, self.policy, jitter=self.randomness.random(), cause=cause
        )
        if not (await self.store.apply([failed]))[0]:
            return
        about = {
            "action": "cleanup",
            "sandbox_id": sandbox.sandbox_id,
            "track_id": sandbox.allocated_to_track,
            "attempts": failed.result.deletion_retry_count,
            "reason": cause.reason,
        }
        if failed.result.status is Status.DELETION_FAILED:
            report.failed += 1
            self.metrics.cleanup.labels("failed").inc()
            logger.error("deletion failed permanently; an operator must act", extra=about)
        else:
            report.retried += 1
            self.metrics.cleanup.labels("retried").inc()
            logger.warning("deletion failed and will be retried", extra=about)
