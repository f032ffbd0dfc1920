"""Jobs that end previews of deleted projects and deactivated accounts, and remove the data of
deleted projects."""

import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import UnavailableError
from sandyard.previews.attempts import Attempts
from sandyard.previews.errors import PreviewElsewhereError
from sandyard.previews.model import Attempt, Preview, end, may_be_running, remove
from sandyard.previews.ports import (
    AccountLookup,
    PageKey,
    PreviewSandbox,
    PreviewStore,
    ProjectLookup,
)
from sandyard.previews.project_files import erase_files

logger = logging.getLogger(__name__)

_YOUNG = timedelta(minutes=2)
"""The minimum age of a preview without a record before it is ended: it may be about to be
recorded."""
_PAGE = 500


class LocalPreviews(Protocol):
    async def clear_ended(self) -> int:
        """Remove the data of ended previews; returns how many."""

    async def running(self) -> Sequence[PreviewSandbox]: ...

    async def kill(self, sandbox_id: str) -> None: ...


@dataclass(slots=True)
class EndReport:
    ended: int = 0
    removed: int = 0
    settled: int = 0
    failed: int = 0
    """Previews whose provider was unavailable; the next run tries them again."""


@dataclass(frozen=True, slots=True)
class EndPreviews:
    """Ends the previews of deleted projects and of deactivated accounts, at every provider, and
    resolves abandoned attempts. Previews of another node are left to it."""

    store: PreviewStore
    attempts: Attempts
    projects: ProjectLookup
    accounts: AccountLookup
    clock: Clock

    async def run_over_running(self) -> EndReport:
        """Checks only previews that run or are being created."""
        now = utc_time(self.clock.now())
        report = EndReport()
        page_key: PageKey | None = None
        while True:
            page, page_key = await self.store.page_of_running(now, after=page_key, limit=_PAGE)
            await self._end_page(page, report)
            if page_key is None:
                return report

    async def _end_page(self, page: Sequence[Preview], report: EndReport) -> None:
        deleted = await self.projects.deleted([each.project_id for each in page])
        deactivated = await self.accounts.deactivated({each.account_id for each in page})
        for preview in page:
            attempt = preview.attempt
            if preview.project_id in deleted:
                work = self._remove(preview, "end-previews", report)
            elif preview.account_id in deactivated:
                work = self._end(preview, report)
            elif attempt is not None and attempt.is_over(utc_time(self.clock.now())):
                work = self._resolve(preview, attempt, report)
            else:
                continue
            await self._try(work, preview, report)

    async def run_over_deleted(self) -> EndReport:
        """Remove the previews and files of deleted projects."""
        report = EndReport()
        after = ""
        while project_ids := await self.projects.uncleared(after=after, limit=_PAGE):
            page = await self.store.find_all(project_ids)
            deleted = await self.projects.deleted([each.project_id for each in page])
            for preview in page:
                if preview.project_id in deleted:
                    work = self._remove(preview, "deleted-projects", report)
                    await self._try(work, preview, report)
            kept = {each.project_id for each in await self.store.find_all(project_ids)}
            await self.projects.clear(set(project_ids) - kept)
            after = project_ids[-1]
        await self.store.erase_deleted()
        return report

    def _cause(self, job: str, reason: str) -> Cause:
        """For one preview, because time passes while a provider is asked for each of them."""
        return Cause.by(actor("job", job), self.clock, reason=reason)

    async def _try(
        self, work: Coroutine[Any, Any, None], preview: Preview, report: EndReport
    ) -> None:
        try:
            await work
        except PreviewElsewhereError:
            return
        except UnavailableError as error:
            report.failed += 1
            logger.warning(
                "a preview or its attempt could not be ended",
                extra={
                    "action": "previews",
                    "project_id": preview.project_id,
                    "error_code": error.code,
                },
            )

    async def _remove(self, preview: Preview, job: str, report: EndReport) -> None:
        """Removes its files too, even if the provider is unavailable."""
        cause = self._cause(job, "the project is deleted")
        try:
            is_ended = await self._end_sandboxes(preview, report)
        except UnavailableError:
            await erase_files(self.store, preview, cause=cause)
            raise
        if is_ended:
            report.removed += await self.store.apply(remove(preview, cause=cause))

    async def _end(self, preview: Preview, report: EndReport) -> None:
        cause = self._cause("end-previews", "the account is deactivated")
        if await self._end_sandboxes(preview, report):
            ended = end(preview, at=cause.at, cause=cause)
            if ended is not None:
                await self.store.apply(ended)

    async def _end_sandboxes(self, preview: Preview, report: EndReport) -> bool:
        is_running = may_be_running(preview.info, now=utc_time(self.clock.now()))
        is_ended = await self.attempts.end_sandboxes(preview)
        report.ended += is_ended and is_running
        return is_ended

    async def _resolve(self, preview: Preview, attempt: Attempt, report: EndReport) -> None:
        cause = self._cause("end-previews", "its attempt was over")
        await self.attempts.resolve(preview, attempt, cause)
        report.settled += 1


@dataclass(slots=True)
class SweepReport:
    cleared: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True)
class SweepPreviews:
    """Clears ended previews on a machine that hosts them itself, and ends those without a
    record."""

    previews: LocalPreviews
    store: PreviewStore
    clock: Clock

    async def run(self) -> SweepReport:
        report = SweepReport(cleared=await self.previews.clear_ended())
        now = utc_time(self.clock.now())
        running = [each for each in await self.previews.running() if each.start_time < now - _YOUNG]
        known = await self.store.known_attempts([each.attempt for each in running], now=now)
        for sandbox in running:
            if sandbox.attempt not in known:
                await self.previews.kill(sandbox.sandbox_id)
                report.ended += 1
                logger.warning(
                    "a preview without a project was ended",
                    extra={"action": "previews", "sandbox_id": sandbox.sandbox_id},
                )
        return report
