"""Status and sync. The provider is asked first, and a sandbox is made only when it is sure that
the last one has ended."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import SandyardError, UnavailableError
from sandyard.kit.ids import IdMaker
from sandyard.kit.turns import Turns
from sandyard.previews.errors import (
    PreviewBusyError,
    PreviewProjectArchivedError,
    PreviewProjectNotFoundError,
)
from sandyard.previews.model import (
    Answer,
    Attempt,
    ChangeSet,
    FileLimits,
    Found,
    Gone,
    Preview,
    ProjectFile,
    SandboxInfo,
    Status,
    Trouble,
    Verdict,
    decide,
    is_worth_asking,
    to_milliseconds,
)
from sandyard.previews.ports import PreviewStore
from sandyard.previews.providers.errors import ProviderTroubleError, SandboxGoneError
from sandyard.previews.providers.ports import PreviewProvider, PreviewSandbox

_RECHECK = timedelta(seconds=30)
"""How old a stored answer may be before a new one with the same content is stored."""
_POLL_SEC = 0.1
_SETTLES_IN = timedelta(seconds=30)
"""How long after a broken-off create a sandbox of it may still turn up at the provider."""
_LOOK_EVERY_SEC = 2.0


@dataclass(frozen=True, slots=True)
class PreviewPolicy:
    ttl: timedelta
    per_account: int
    files: FileLimits
    attempt_for: timedelta = timedelta(seconds=180)
    wait_sec: float = 45


@dataclass(frozen=True, slots=True)
class Synced:
    project_id: str
    info: SandboxInfo
    files_count: int
    version: int
    was_made: bool


class Previews:
    def __init__(
        self,
        store: PreviewStore,
        provider: PreviewProvider,
        *,
        clock: Clock,
        make_attempt_id: IdMaker,
        policy: PreviewPolicy,
    ) -> None:
        self._store = store
        self._provider = provider
        self._clock = clock
        self._make_attempt_id = make_attempt_id
        self._policy = policy
        self._syncs: Turns[Synced] = Turns()
        self._questions: dict[str, asyncio.Task[Answer]] = {}

    async def status(self, project_id: str, *, account_id: str) -> Verdict:
        """How the project's sandbox stands. Never says `expired` because of trouble."""
        while True:
            preview = await self._get(project_id, account_id)
            verdict, is_recorded = await self._look(preview)
            if is_recorded:
                return verdict

    async def sync(self, project_id: str, *, account_id: str) -> Synced:
        """The running sandbox with the files brought up to date, or a new one if there is none.

        However many callers and replicas ask at once, one sandbox is made, and all are told of
        it. A call that comes while another runs is answered by a run that began after it came.
        """
        preview = await self._get(project_id, account_id)
        if preview.is_archived:
            raise PreviewProjectArchivedError
        return await self._syncs.run(project_id, lambda: self._sync(project_id, account_id))

    async def list_files(
        self, project_id: str, *, account_id: str
    ) -> tuple[int, Sequence[ProjectFile]]:
        preview = await self._get(project_id, account_id)
        return preview.files_version, await self._store.files(project_id)

    async def change_files(self, project_id: str, changes: ChangeSet, *, account_id: str) -> int:
        """The version that the change set made."""
        preview = await self._get(project_id, account_id)
        if preview.is_archived:
            raise PreviewProjectArchivedError
        return await self._store.change_files(
            project_id, changes, limits=self._policy.files, now=self._now()
        )

    async def close(self) -> None:
        await self._syncs.stop()
        await self._provider.close()

    async def _look(self, preview: Preview) -> tuple[Verdict, bool]:
        """The verdict; False if it is of another sandbox than the one that is recorded now."""
        answer: Answer | None = None
        if preview.info is not None and is_worth_asking(preview.info, now=self._now()):
            answer = await self._ask(preview.info.sandbox_id)
        verdict = decide(preview.info, answer, now=self._now())
        if verdict.info is None or not _is_news(preview.info, verdict.info):
            return verdict, True
        if await self._store.update(preview, verdict.info):
            return verdict, True
        now = await self._get(preview.project_id, preview.account_id)
        return verdict, now.info is not None and now.info.sandbox_id == verdict.info.sandbox_id

    async def _ask(self, sandbox_id: str) -> Answer:
        """One question for all who want to know it at the same time."""
        question = self._questions.get(sandbox_id)
        if question is None:
            question = asyncio.create_task(self._ask_provider(sandbox_id))
            self._questions[sandbox_id] = question
            question.add_done_callback(lambda _: self._questions.pop(sandbox_id, None))
        return await asyncio.shield(question)

    async def _ask_provider(self, sandbox_id: str) -> Answer:
        try:
            return Found(to_milliseconds(await self._provider.end_time(sandbox_id)))
        except SandboxGoneError:
            return Gone()
        except ProviderTroubleError as error:
            return Trouble(error)

    async def _sync(self, project_id: str, account_id: str) -> Synced:
        patience = _Patience(self._policy.wait_sec)
        while True:
            preview = await self._get(project_id, account_id)
            verdict, is_recorded = await self._look(preview)
            if is_recorded:
                synced = await self._act_on(preview, verdict, patience)
                if synced is not None:
                    return synced

    async def _act_on(
        self, preview: Preview, verdict: Verdict, patience: "_Patience"
    ) -> Synced | None:
        """What the verdict asks for; None if things are to be looked at anew."""
        if verdict.status is Status.UNKNOWN or verdict.is_stale:
            raise verdict.trouble or UnavailableError(verdict.message)
        if verdict.status is Status.RUNNING and verdict.info is not None:
            return await self._bring_up_to_date(preview, verdict.info)
        if preview.attempt is not None and await self._stands(preview, preview.attempt, patience):
            return None
        return await self._make(preview)

    async def _stands(self, preview: Preview, attempt: Attempt, patience: "_Patience") -> bool:
        """Whether the attempt of another caller is still to be waited for, or has just been
        found to have made a sandbox."""
        is_over = self._now() >= attempt.until
        if (is_over or patience.is_time_to_look()) and await self._adopt(preview, attempt):
            return True
        if not is_over:
            await patience.wait()
        return not is_over

    async def _adopt(self, preview: Preview, attempt: Attempt) -> bool:
        """Record what an attempt made whose maker has not; its files are brought up to date by
        whoever syncs it."""
        found = await self._provider.find_attempt(project_id=preview.project_id, attempt=attempt.id)
        if found is None:
            return False
        info = self._info(found, attempt, files_version=0)
        await self._store.record(preview, info, attempt_id=attempt.id)
        return True

    async def _make(self, seen: Preview) -> Synced | None:
        """A new sandbox; None if another caller was quicker."""
        now = self._now()
        attempt = Attempt(self._make_attempt_id(), now + self._policy.attempt_for)
        if not await self._store.begin(
            seen, attempt, running_limit=self._policy.per_account, now=now
        ):
            return None
        written, _, version = await self._store.changes_since(seen.project_id, 0)
        try:
            made = await self._provider.create(
                project_id=seen.project_id,
                attempt=attempt.id,
                files=written,
                ttl=self._policy.ttl,
            )
        except SandyardError as error:
            await self._let_go(seen, attempt, error)
            raise
        info = self._info(made, attempt, files_version=version)
        if await self._store.record(seen, info, attempt_id=attempt.id):
            return Synced(seen.project_id, info, len(written), version, was_made=True)
        current = await self._store.find(seen.project_id, account_id=seen.account_id)
        if current is None or current.info is None or current.info.sandbox_id != made.sandbox_id:
            await self._provider.kill(made.sandbox_id)  # we took too long, and another made one
        return None

    async def _let_go(self, seen: Preview, attempt: Attempt, error: SandyardError) -> None:
        """End an attempt that made nothing; one of which that is not known stands a while yet."""
        if not isinstance(error, ProviderTroubleError) or error.made_nothing:
            await self._store.give_up(seen, attempt_id=attempt.id)
        else:
            until = min(attempt.until, self._now() + _SETTLES_IN)
            await self._store.shorten(seen, Attempt(attempt.id, until))

    async def _bring_up_to_date(self, seen: Preview, info: SandboxInfo) -> Synced | None:
        """None if the sandbox ended meanwhile."""
        project_id = seen.project_id
        written, deleted, version = await self._store.changes_since(project_id, info.files_version)
        if written or deleted:
            try:
                await self._provider.write_files(info.sandbox_id, written=written, deleted=deleted)
            except SandboxGoneError:
                return None
        preview = await self._get(project_id, seen.account_id)
        is_same = preview.info is not None and preview.info.sandbox_id == info.sandbox_id
        if preview.info is not None and is_same and preview.info.files_version != version:
            info = replace(preview.info, files_version=version)
            await self._store.update(preview, info)
        count = await self._store.count_files(project_id)
        return Synced(project_id, info, count, version, was_made=False)

    def _info(self, made: PreviewSandbox, attempt: Attempt, *, files_version: int) -> SandboxInfo:
        return SandboxInfo(
            sandbox_id=made.sandbox_id,
            preview_url=made.preview_url,
            start_time=to_milliseconds(made.start_time),
            end_time=to_milliseconds(made.end_time),
            last_checked=self._now(),
            attempt=attempt.id,
            files_version=files_version,
        )

    async def _get(self, project_id: str, account_id: str) -> Preview:
        preview = await self._store.find(project_id, account_id=account_id)
        if preview is None:
            raise PreviewProjectNotFoundError
        return preview

    def _now(self) -> datetime:
        return utc_time(self._clock.now())


class _Patience:
    """How long another caller's attempt is waited for, and how often the provider is asked."""

    def __init__(self, wait_sec: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._give_up_at = self._now() + wait_sec
        self._look_at = self._now()

    def is_time_to_look(self) -> bool:
        is_time = self._now() >= self._look_at
        if is_time:
            self._look_at = self._now() + _LOOK_EVERY_SEC
        return is_time

    async def wait(self) -> None:
        if self._now() > self._give_up_at:
            raise PreviewBusyError
        await asyncio.sleep(_POLL_SEC)


def _is_news(before: SandboxInfo | None, after: SandboxInfo) -> bool:
    if before is None:
        return False
    return after.end_time != before.end_time or after.last_checked - before.last_checked >= _RECHECK
