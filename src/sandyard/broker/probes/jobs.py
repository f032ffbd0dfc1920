"""The job `probe`: sandboxes that fail leave the pool, and come back when they pass."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from sandyard.broker.pool.model import Sandbox, Status
from sandyard.broker.pool.ports import PoolStore, SandboxFilter, pages_of
from sandyard.broker.pool.provider_model import loses_too_many
from sandyard.broker.probes.model import decide_probed, is_probed
from sandyard.broker.probes.ports import Prober
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.tasks import for_each
from sandyard.kit.wired import wired

logger = logging.getLogger(__name__)

_PROBED = (Status.AVAILABLE, Status.RESERVED, Status.STALE)


@dataclass(slots=True)
class ProbeReport:
    probed: int = 0
    failed: int = 0
    quarantined: int = 0
    restored: int = 0
    held_back: int = 0


@wired
class ProbeJob:
    """Without a prober nothing is probed."""

    store: PoolStore
    prober: Prober | None
    clock: Clock
    threshold: int
    parallel: int
    assigner: SandboxAssigner

    async def run(self) -> ProbeReport:
        """Probe every sandbox that is not leased. If most would be quarantined at once, none is: a
        prober without network is then more likely than broken sandboxes."""
        report = ProbeReport()
        if self.prober is None:
            return report
        decided: list[Transition[Sandbox]] = []
        async for rows in self._rows():
            decided += await self._probe(self.prober, rows, report)
        leaving = [each for each in decided if each.result.status is Status.STALE]
        if loses_too_many(len(leaving), of=report.probed):
            report.held_back = len(leaving)
            decided = [each for each in decided if each.result.status is not Status.STALE]
            logger.error(
                "quarantine was held back: most probes fail; check the network to the sandboxes",
                extra={"action": "probe", "failed": len(leaving), "of": report.probed},
            )
        await self._apply(decided, report)
        return report

    async def _rows(self) -> AsyncIterator[Sequence[Sandbox]]:
        for status in _PROBED:
            async for rows in pages_of(self.store, SandboxFilter(status)):
                yield [row for row in rows if is_probed(row)]

    async def _probe(
        self, prober: Prober, rows: Sequence[Sandbox], report: ProbeReport
    ) -> list[Transition[Sandbox]]:
        decided: list[Transition[Sandbox]] = []

        async def probe(row: Sandbox) -> None:
            failure = await prober.check(row)
            report.probed += 1
            report.failed += failure is not None
            cause = Cause.by(actor("job", "probe"), self.clock)
            change = decide_probed(row, failure, threshold=self.threshold, cause=cause)
            if change is not None:
                decided.append(change)

        await for_each(rows, probe, slots=asyncio.Semaphore(self.parallel))
        return decided

    async def _apply(self, decided: Sequence[Transition[Sandbox]], report: ProbeReport) -> None:
        for change, done in zip(decided, await self.assigner.apply(decided), strict=True):
            before = change.before
            if not done or before is None or before.status is change.result.status:
                continue
            is_out = change.result.status is Status.STALE
            report.quarantined += is_out
            report.restored += not is_out
            logger.warning(
                "a probe changed a sandbox",
                extra={
                    "action": "probe",
                    "sandbox_id": before.sandbox_id,
                    "status": change.result.status,
                    "reason": change.events[-1].reason,
                },
            )
