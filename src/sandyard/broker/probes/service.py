"""Probing: the job `probe`, by which sandboxes that fail leave the pool and come back when they
pass; and at the claim, before its track gets a sandbox."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Self

from sandyard.broker.pool.errors import (
    AllocationExpiredError,
    NoSandboxesAvailableError,
    RowBusyError,
    SandboxNotFoundError,
    TransitionNotAllowedError,
)
from sandyard.broker.pool.lease_model import Replacement, decide_hold
from sandyard.broker.pool.leases import Leases
from sandyard.broker.pool.model import Claim, Claimed, Lease, Sandbox, Status
from sandyard.broker.pool.ports import PoolStore, SandboxFilter, pages_of
from sandyard.broker.pool.provider_model import loses_too_many
from sandyard.broker.probes.errors import ProbeDeadlineError
from sandyard.broker.probes.model import (
    decide_passed_at_claim,
    decide_probed,
    is_probed,
    may_be_unprobed,
)
from sandyard.broker.probes.ports import Prober
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, ConflictRetries, Transition
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.tasks import for_each
from sandyard.kit.wired import wired

logger = logging.getLogger(__name__)
_PROBED = (Status.AVAILABLE, Status.RESERVED, Status.STALE)
_LATE = "no answer in time"
_MOST_REFUSED = 5
"""After this many failures, a prober without network is more likely than broken sandboxes."""


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


@dataclass(slots=True)
class CallProber:
    """Probes for one call, up to its deadline. A free sandbox that fails stays in the pool: the job
    `probe` quarantines it, unless most sandboxes fail."""

    prober: Prober
    until: float
    refused: int = 0

    @classmethod
    def start(cls, prober: Prober, deadline_sec: float) -> Self:
        return cls(prober, asyncio.get_running_loop().time() + deadline_sec)

    async def __call__(self, free: Sandbox) -> bool:
        if self.refused == _MOST_REFUSED:
            raise ProbeDeadlineError
        failure = await self.failure_of(free)
        self.refused += failure is not None
        return failure is None

    async def failure_of(self, sandbox: Sandbox) -> str | None:
        try:
            async with asyncio.timeout_at(self.until):
                return await self.prober.check(sandbox)
        except TimeoutError:
            raise ProbeDeadlineError from None


@wired
class ClaimChecker:
    """A passed probe is recorded in the sandbox's row, and a lease moves to another sandbox only
    while it is not recorded. So of concurrent calls with one key, on any replica, the first to
    finish decides for all, and no call returns a sandbox that another call replaces."""

    store: PoolStore
    leases: Leases
    start_prober: Callable[[], CallProber]
    clock: Clock
    hold_sec: int
    assigner: SandboxAssigner

    async def check(self, claimed: Claimed, claim: Claim) -> Claimed:
        """Probe the sandbox; returns the lease, moved to a similar sandbox if the first fails. The
        first is then held. A repeat is probed too, if it may be the first to get a response.

        Raises NoSandboxesAvailableError if there is no other, and ProbeDeadlineError if none passes
        or the deadline is over; the lease then ends. Raises RowBusyError if the lease ended
        meanwhile.
        """
        if not claimed.is_new and not may_be_unprobed(claimed.lease, now=self.clock.now()):
            return claimed
        prober = self.start_prober()
        async for _ in ConflictRetries():
            row = await self._leased(claimed.lease.sandbox_id, claim)
            if row.probed_at is not None:
                return Claimed(row.lease, is_new=claimed.is_new)
            lease = await self._probe_lease(row, claim, prober)
            if lease is not None:
                return Claimed(lease, is_new=claimed.is_new)
        raise RowBusyError

    async def _leased(self, sandbox_id: str, claim: Claim) -> Sandbox:
        row = await self.store.find(sandbox_id)
        while isinstance(row, Sandbox) and row.replaced_by is not None:
            row = await self.store.find(row.replaced_by)
        if not isinstance(row, Sandbox) or not row.is_leased_to(*claim.lease_key):
            raise RowBusyError
        return row

    async def _probe_lease(self, row: Sandbox, claim: Claim, prober: CallProber) -> Lease | None:
        """The lease that its track may receive; None if the row was changed meanwhile."""
        reason = _reason(_LATE)
        try:
            failure = await prober.failure_of(row)
            if failure is None:
                return await self._pass(row, claim)
            reason = _reason(failure)
            return await self._replace(row, claim, reason, prober)
        except (NoSandboxesAvailableError, ProbeDeadlineError):
            if await self._hold(row, reason):
                raise
        except (AllocationExpiredError, SandboxNotFoundError, TransitionNotAllowedError):
            pass  # another call ended it
        return None

    async def _pass(self, row: Sandbox, claim: Claim) -> Lease | None:
        cause = Cause.by(actor("track", claim.track_id), self.clock)
        passed = decide_passed_at_claim(row, cause)
        [is_done] = await self.store.apply([passed])
        return passed.result.lease if is_done else None

    async def _replace(self, row: Sandbox, claim: Claim, reason: str, prober: CallProber) -> Lease:
        wanted = Replacement(
            claim.track_id, reason, claim.name_prefix, claim.client, unless_probed=True
        )
        return await self.leases.replace(row.sandbox_id, wanted, check=prober)

    async def _hold(self, row: Sandbox, reason: str) -> bool:
        """False if the row has changed since the probe."""
        cause = Cause.by(actor("system"), self.clock, reason=reason)
        held = decide_hold(row, cause.at_ms // 1000 + self.hold_sec, cause)
        [is_done] = await self.assigner.apply([held])
        return is_done


def _reason(failure: str) -> str:
    return f"probe at claim: {failure}"
