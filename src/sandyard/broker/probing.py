"""The job `probe`: sandboxes that fail their probes leave the pool, and come back when they pass.
And the probe of a sandbox that has just been leased."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from sandyard.broker.errors import NoSandboxesAvailableError, ProbeDeadlineError
from sandyard.broker.hold_model import Replacement
from sandyard.broker.leases import Leases
from sandyard.broker.listing_model import loses_too_many
from sandyard.broker.model import Claim, Claimed, Lease, Sandbox, Status
from sandyard.broker.offers import Offers
from sandyard.broker.ports import PoolStore, Prober
from sandyard.broker.probe_model import decide_probed, is_probed
from sandyard.broker.service import Broker
from sandyard.kit.clock import Clock
from sandyard.kit.events import actor
from sandyard.kit.parallel import for_each
from sandyard.kit.transitions import Cause, Transition

logger = logging.getLogger(__name__)

_PAGE = 100
_PROBED = (Status.AVAILABLE, Status.RESERVED, Status.STALE)


@dataclass(slots=True)
class ProbeReport:
    probed: int = 0
    failed: int = 0
    quarantined: int = 0
    restored: int = 0
    held_back: int = 0


class Probes:
    def __init__(
        self,
        store: PoolStore,
        prober: Prober | None,
        *,
        clock: Clock,
        threshold: int,
        parallel: int,
    ) -> None:
        """Without a prober nothing is probed."""
        self._store = store
        self._prober = prober
        self._offers = Offers(store, clock=clock)
        self._clock = clock
        self._threshold = threshold
        self._parallel = parallel

    async def run(self) -> ProbeReport:
        """Probe every sandbox once that nobody has. If most would be quarantined at once, none is:
        then the prober is more likely to be cut off than they are broken."""
        report = ProbeReport()
        if self._prober is None:
            return report
        decided: list[Transition[Sandbox]] = []
        async for rows in self._rows():
            decided += await self._probe(self._prober, rows, report)
        leaving = [each for each in decided if each.result.status is Status.STALE]
        if loses_too_many(len(leaving), of=report.probed):
            report.held_back = len(leaving)
            decided = [each for each in decided if each.result.status is not Status.STALE]
            logger.error(
                "probes would quarantine most of the pool and did not; look at the network between",
                extra={"action": "probe", "failed": len(leaving), "of": report.probed},
            )
        await self._apply(decided, report)
        return report

    async def _rows(self) -> AsyncIterator[Sequence[Sandbox]]:
        for status in _PROBED:
            cursor: str | None = None
            while True:
                page = await self._store.page(status=status, limit=_PAGE, cursor=cursor)
                yield [row for row in page.items if is_probed(row)]
                cursor = page.next_cursor
                if cursor is None:
                    break

    async def _probe(
        self, prober: Prober, rows: Sequence[Sandbox], report: ProbeReport
    ) -> list[Transition[Sandbox]]:
        decided: list[Transition[Sandbox]] = []

        async def probe(row: Sandbox) -> None:
            failure = await prober.check(row)
            report.probed += 1
            report.failed += failure is not None
            cause = Cause.by(actor("job", "probe"), self._clock)
            change = decide_probed(row, failure, threshold=self._threshold, cause=cause)
            if change is not None:
                decided.append(change)

        await for_each(rows, probe, slots=asyncio.Semaphore(self._parallel))
        return decided

    async def _apply(self, decided: Sequence[Transition[Sandbox]], report: ProbeReport) -> None:
        for change, done in zip(decided, await self._offers.apply(decided), strict=True):
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


class ProbedClaims:
    """Leases whose sandbox was probed before its track hears of it."""

    def __init__(
        self, broker: Broker, leases: Leases, prober: Prober, *, deadline_sec: float
    ) -> None:
        self._broker = broker
        self._leases = leases
        self._prober = prober
        self._deadline_sec = deadline_sec

    async def check(self, claimed: Claimed, claim: Claim) -> Claimed:
        """The lease, on another sandbox if the first fails its probe, such a one as was claimed;
        what failed is held. With none left that passes, the lease ends and
        NoSandboxesAvailableError is raised; past the deadline, ProbeDeadlineError."""
        lease = claimed.lease
        loop = asyncio.get_running_loop()
        until = loop.time() + self._deadline_sec
        while (failure := await self._prober.check(lease)) is not None:
            reason = f"probe at claim: {failure}"
            try:
                lease = await self._other(lease, claim, reason, is_late=loop.time() >= until)
            except (NoSandboxesAvailableError, ProbeDeadlineError):
                await self._broker.hold(sandbox_id=lease.sandbox_id, reason=reason)
                raise
        return Claimed(lease, is_new=True)

    async def _other(self, lease: Lease, claim: Claim, reason: str, *, is_late: bool) -> Lease:
        if is_late:
            raise ProbeDeadlineError
        asked = Replacement(claim.track_id, reason, claim.name_prefix, claim.client)
        return await self._leases.replace(lease.sandbox_id, asked)
