"""Jobs that end previews of nobody's."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

from sandyard.kit.clock import Clock, utc_time
from sandyard.previews.ports import DeletedProjects, KnownAttempts
from sandyard.previews.providers.ports import PreviewProvider, PreviewSandbox

logger = logging.getLogger(__name__)

_YOUNG = timedelta(minutes=2)
"""How old a preview is before it is taken for nobody's: one may be about to be recorded."""


class HeldPreviews(Protocol):
    async def clear_ended(self) -> int:
        """Drop what is kept of previews that have ended; how many."""
        ...

    async def running(self) -> Sequence[PreviewSandbox]: ...

    async def kill(self, sandbox_id: str) -> None: ...


@dataclass(slots=True)
class DeletedReport:
    ended: int = 0


class EndDeleted:
    """Ends the previews of projects that were deleted, whatever provider has them."""

    def __init__(self, store: DeletedProjects, provider: PreviewProvider, *, clock: Clock) -> None:
        self._store = store
        self._provider = provider
        self._clock = clock

    async def run(self) -> DeletedReport:
        report = DeletedReport()
        now = utc_time(self._clock.now())
        for project_id, info in await self._store.running_of_deleted(now=now):
            await self._provider.kill(info.sandbox_id)
            await self._store.record_end(project_id, replace(info, end_time=now))
            report.ended += 1
        return report


@dataclass(slots=True)
class SweepReport:
    cleared: int = 0
    ended: int = 0


class SweepPreviews:
    """Clears what has ended on a machine that holds previews itself, and ends what nobody has."""

    def __init__(self, held: HeldPreviews, known: KnownAttempts, *, clock: Clock) -> None:
        self._held = held
        self._known = known
        self._clock = clock

    async def run(self) -> SweepReport:
        report = SweepReport(cleared=await self._held.clear_ended())
        old_enough = utc_time(self._clock.now()) - _YOUNG
        running = [each for each in await self._held.running() if each.start_time < old_enough]
        known = await self._known.known_attempts([each.attempt for each in running])
        for sandbox in running:
            if sandbox.attempt not in known:
                await self._held.kill(sandbox.sandbox_id)
                report.ended += 1
                logger.warning(
                    "a preview that no project has was ended",
                    extra={"action": "previews", "sandbox_id": sandbox.sandbox_id},
                )
        return report
