"""Jobs that end previews of deleted projects and deactivated accounts, and remove the data of
deleted projects."""

import logging
from collections.abc import Coroutine, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import UnavailableError
from sandyard.previews.attempts import Attempts
from sandyard.previews.erasure import erase_files
from sandyard.previews.model import Attempt, Preview, end, may_be_running, remove
from sandyard.previews.ports import (
    AccountLookup,
    DeletedProjects,
    KnownAttempts,
    RemovablePreviews,
)
from sandyard.previews.providers.errors import PreviewElsewhereError
from sandyard.previews.providers.ports import PreviewSandbox

logger = logging.getLogger(__name__)

_YOUNG = timedelta(minutes=2)
"""The minimum age of a preview without a record before it is ended: it may be about to be
recorded."""
_PAGE = 500


class LocalPreviews(Protocol):
    async def clear_ended(self) -> int:
        """Remove the data of ended previews; returns how many."""
        ...

    async def running(self) -> Sequence[PreviewSandbox]: ...

    async def kill(self, sandbox_id: str) -> None: ...


@dataclass(slots=True)
class EndReport:
    ended: int = 0
    removed: int = 0
    settled: int = 0
    failed: int = 0
    """Previews whose provider was unavailable; the next run tries them again."""


class EndPreviews:
    """Ends the previews of deleted projects and of deactivated accounts, at every provider, and
    resolves abandoned attempts. Previews of another node are left to it."""

    def __init__(
        self,
        store: RemovablePreviews,
        attempts: Attempts,
        projects: DeletedProjects,
        accounts: AccountLookup,
        *,
        clock: Clock,
    ) -> None:
        self._store = store
        self._attempts = attempts
        self._projects = projects
        self._accounts = accounts
        self._clock = clock

    async def run_over_running(self) -> EndReport:
        """Checks only previews that run or are being created."""
        now = utc_time(self._clock.now())
        report = EndReport()
        page, page_key = await self._store.page_of_running(now, after=None, limit=_PAGE)
        while page:
            deleted = await self._remove_deleted(page, "end-previews", report)
            await self._end_deactivated(page, deleted, report)
            if page_key is None:
                break
            page, page_key = await self._store.page_of_running(now, after=page_key, limit=_PAGE)
        return report

    async def run_over_deleted(self) -> EndReport:
        """Remove the previews and files of deleted projects."""
        report = EndReport()
        after = ""
        while project_ids := await self._projects.uncleared(after=after, limit=_PAGE):
            page = await self._store.find_all(project_ids)
            await self._remove_deleted(page, "deleted-projects", report)
            kept = {each.project_id for each in await self._store.find_all(project_ids)}
            await self._projects.clear(set(project_ids) - kept)
            after = project_ids[-1]
        await self._store.erase_deleted()
        return report

    async def _remove_deleted(
        self, page: Sequence[Preview], job: str, report: EndReport
    ) -> AbstractSet[str]:
        deleted = await self._projects.deleted([each.project_id for each in page])
        for preview in page:
            if preview.project_id in deleted:
                cause = self._cause(job, "the project is deleted")
                await self._try(self._remove(preview, cause, report), preview, report)
        return deleted

    async def _end_deactivated(
        self, page: Sequence[Preview], deleted: AbstractSet[str], report: EndReport
    ) -> None:
        now = utc_time(self._clock.now())
        ended = await self._accounts.deactivated({each.account_id for each in page})
        for preview in page:
            if preview.project_id in deleted:
                continue
            if preview.account_id in ended:
                cause = self._cause("end-previews", "the account is deactivated")
                await self._try(self._end(preview, cause, report), preview, report)
            elif preview.attempt is not None and preview.attempt.is_over(now):
                cause = self._cause("end-previews", "its attempt was over")
                resolving = self._resolve(preview, preview.attempt, cause, report)
                await self._try(resolving, preview, report)

    def _cause(self, job: str, reason: str) -> Cause:
        """For one preview, because time passes while a provider is asked for each of them."""
        return Cause.by(actor("job", job), self._clock, reason=reason)

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

    async def _remove(self, preview: Preview, cause: Cause, report: EndReport) -> None:
        """Removes its files too, even if the provider is unavailable."""
        try:
            is_ended = await self._end_sandboxes(preview, report)
        except UnavailableError:
            await erase_files(self._store, preview, cause=cause)
            raise
        if is_ended:
            report.removed += await self._store.apply(remove(preview, cause=cause))

    async def _end(self, preview: Preview, cause: Cause, report: EndReport) -> None:
        if await self._end_sandboxes(preview, report):
            ended = end(preview, at=cause.at, cause=cause)
            if ended is not None:
                await self._store.apply(ended)

    async def _end_sandboxes(self, preview: Preview, report: EndReport) -> bool:
        is_running = may_be_running(preview.info, now=utc_time(self._clock.now()))
        is_ended = await self._attempts.end_sandboxes(preview)
        report.ended += is_ended and is_running
        return is_ended

    async def _resolve(
        self, preview: Preview, attempt: Attempt, cause: Cause, report: EndReport
    ) -> None:
        await self._attempts.resolve(preview, attempt, cause)
        report.settled += 1


@dataclass(slots=True)
class SweepReport:
    cleared: int = 0
    ended: int = 0


class SweepPreviews:
    """Clears ended previews on a machine that hosts them itself, and ends those without a
    record."""

    def __init__(self, previews: LocalPreviews, known: KnownAttempts, *, clock: Clock) -> None:
        self._previews = previews
        self._known = known
        self._clock = clock

    async def run(self) -> SweepReport:
        report = SweepReport(cleared=await self._previews.clear_ended())
        now = utc_time(self._clock.now())
        running = [
            each for each in await self._previews.running() if each.start_time < now - _YOUNG
        ]
        known = await self._known.known_attempts([each.attempt for each in running], now=now)
        for sandbox in running:
            if sandbox.attempt not in known:
                await self._previews.kill(sandbox.sandbox_id)
                report.ended += 1
                logger.warning(
                    "a preview without a project was ended",
                    extra={"action": "previews", "sandbox_id": sandbox.sandbox_id},
                )
        return report
