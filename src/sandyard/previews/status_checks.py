"""Asks the provider for a sandbox's status once for all concurrent callers, and records it."""

import asyncio
from dataclasses import replace
from datetime import datetime

from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.tasks import SingleFlight
from sandyard.previews import status_model
from sandyard.previews.errors import ProviderTimeoutError, ProviderTroubleError, SandboxGoneError
from sandyard.previews.model import Preview, may_be_running, to_milliseconds
from sandyard.previews.ports import Application, PreviewProvider, PreviewStore
from sandyard.previews.status_model import ProviderAnswer, StatusReport

ANSWER_WITHIN_SEC = 0.3
_APPLICATION_WITHIN_SEC = 0.1
_SHOWN_LINES = 20
_SYSTEM = "system"
"""The actor for changes that the provider reports."""

Checked = tuple[StatusReport, Preview | None]


class StatusChecks:
    def __init__(
        self,
        store: PreviewStore,
        provider: PreviewProvider,
        *,
        clock: Clock,
        answer_within_sec: float,
    ) -> None:
        self._answer_within_sec = answer_within_sec
        self._store = store
        self._provider = provider
        self._clock = clock
        self._running: set[asyncio.Task[Checked]] = set()
        self._applications: SingleFlight[Application | None] = SingleFlight()
        self._questions: dict[str, asyncio.Task[ProviderAnswer]] = {}
        self._late: set[str] = set()
        """The sandboxes whose question takes too long to wait for."""

    async def stop(self) -> None:
        tasks = [*self._running, *self._questions.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._applications.stop()

    async def check_in_time(self, preview: Preview) -> Checked:
        """A check that takes longer continues and records its result; until then, nobody else waits
        for it."""
        is_asked = may_be_running(preview.info, now=self._now())
        sandbox_id = preview.info.sandbox_id if preview.info is not None and is_asked else ""
        late = ProviderTimeoutError() if is_asked else None
        known = status_model.report_status(preview, late, now=self._now())
        if sandbox_id in self._late:
            return known, preview
        check = asyncio.create_task(self.check(preview))
        self._running.add(check)
        check.add_done_callback(self._checked)
        await asyncio.wait({check}, timeout=self._answer_within_sec)
        if check.done():
            return check.result()
        self._late |= {sandbox_id} & self._questions.keys()
        return known, preview

    async def application(self, sandbox_id: str) -> Application | None:
        """None if it is not known in time; the question continues, once for all callers."""
        asking = self._applications.run(sandbox_id, lambda: self._ask_application(sandbox_id))
        try:
            return await asyncio.wait_for(asking, _APPLICATION_WITHIN_SEC)
        except (TimeoutError, SandboxGoneError, ProviderTroubleError):
            return None

    async def _ask_application(self, sandbox_id: str) -> Application | None:
        """With the last lines of its log until it runs."""
        found = await self._provider.application(sandbox_id)
        if found is None or found.phase not in ("installing", "starting"):
            return found
        lines = await self._provider.log(sandbox_id, lines=_SHOWN_LINES)
        return replace(found, last_lines=lines)

    def _checked(self, check: "asyncio.Task[Checked]") -> None:
        self._running.discard(check)
        if not check.cancelled():
            check.exception()  # its caller has received it, or did not wait for it

    async def check(self, preview: Preview) -> Checked:
        """The report and the updated preview; None if another sandbox is recorded by now."""
        answer: ProviderAnswer = None
        if preview.info is not None and may_be_running(preview.info, now=self._now()):
            answer = await self._ask(preview.info.sandbox_id)
        report = status_model.report_status(preview, answer, now=self._now())
        reason = answer.reason if isinstance(answer, SandboxGoneError) else ""
        cause = Cause.by(_SYSTEM, self._clock, reason=reason or None)
        transition = status_model.record_check(preview, report, cause=cause)
        if transition is not None and not await self._store.apply(transition):
            current = await self._store.find(preview.project_id)
            is_same = current and report.info and current.has_sandbox(report.info.sandbox_id)
            return report, current if is_same else None
        recorded = preview if transition is None else transition.result
        checked_at = status_model.recheck_at(preview, report)
        if checked_at is not None:
            await self._store.touch(recorded, last_checked=checked_at)
        return report, recorded

    async def _ask(self, sandbox_id: str) -> ProviderAnswer:
        """Concurrent callers share one request."""
        question = self._questions.get(sandbox_id)
        if question is None:
            question = asyncio.create_task(self._ask_provider(sandbox_id))
            self._questions[sandbox_id] = question
            question.add_done_callback(lambda _: self._asked(sandbox_id))
        return await asyncio.shield(question)

    def _asked(self, sandbox_id: str) -> None:
        del self._questions[sandbox_id]
        self._late.discard(sandbox_id)

    async def _ask_provider(self, sandbox_id: str) -> ProviderAnswer:
        try:
            return to_milliseconds(await self._provider.end_time(sandbox_id))
        except (SandboxGoneError, ProviderTroubleError) as error:
            return error

    def _now(self) -> datetime:
        return utc_time(self._clock.now())
