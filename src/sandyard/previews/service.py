"""Status and sync. The provider is asked first, and a sandbox is created only when the last one has
certainly ended."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandyard.kit.changes.transitions import Cause, ConflictRetries
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.tasks import SingleFlight
from sandyard.kit.errors import SandyardError, UnavailableError
from sandyard.previews import errors, model
from sandyard.previews.attempts import Attempts, AttemptWait, info_of
from sandyard.previews.model import Attempt, Preview, Quota, SandboxInfo, SyncOutcome
from sandyard.previews.ports import (
    AccountLookup,
    Application,
    PreviewProvider,
    PreviewStore,
    ProjectLookup,
)
from sandyard.previews.projects import ProjectPreviews
from sandyard.previews.status_checks import ANSWER_WITHIN_SEC, StatusChecks
from sandyard.previews.status_model import PreviewStatus, StatusReport

_APPEARS_WITHIN = timedelta(seconds=30)
"""How long after an interrupted create its sandbox may still appear at the provider."""
_SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class PreviewPolicy:
    ttl: timedelta
    per_account: int
    attempt_for: timedelta = timedelta(seconds=180)
    wait_sec: float = 45
    answer_within_sec: float = ANSWER_WITHIN_SEC
    """How long a status waits for the provider."""


@dataclass(frozen=True, slots=True)
class Synced:
    project_id: str
    info: SandboxInfo
    files_count: int
    version: int
    outcome: SyncOutcome


class Previews:
    """Every use case concerns a project of the given account, and raises
    PreviewProjectNotFoundError if the account has none with this id."""

    def __init__(
        self,
        store: PreviewStore,
        provider: PreviewProvider,
        projects: ProjectLookup,
        accounts: AccountLookup,
        *,
        clock: Clock,
        policy: PreviewPolicy,
        require_storage: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """`require_storage` raises if the account with this id may not store the files of one more
        preview."""
        self._store = store
        self._provider = provider
        self._projects = projects
        self._known = ProjectPreviews(store, projects)
        self._clock = clock
        self._policy = policy
        self._require_storage = require_storage
        self._attempts = Attempts(store, provider, accounts, clock, policy.ttl)
        self._checks = StatusChecks(
            store, provider, clock=clock, answer_within_sec=policy.answer_within_sec
        )
        self._syncs: SingleFlight[Synced] = SingleFlight()

    async def status(self, project_id: str, *, account_id: str) -> StatusReport:
        """The status of the project's sandbox, which is never `expired` because the provider is
        unavailable. If the provider is slow, a recent last response is returned within a second."""
        async for _ in ConflictRetries():
            preview = await self._known.get(project_id, account_id)
            report, recorded = await self._checks.check_in_time(preview)
            if recorded is not None:
                return report
        raise errors.PreviewBusyError

    async def application(self, report: StatusReport) -> Application | None:
        """What runs in the preview of this report; None if that can't be said at once."""
        if report.status is not PreviewStatus.RUNNING or report.info is None or report.is_stale:
            return None
        return await self._checks.application(report.info.sandbox_id)

    async def log(self, project_id: str, *, account_id: str, lines: int) -> Sequence[str]:
        """The last lines of the running preview's log; none if it does not run."""
        info = await self.running_sandbox(project_id, account_id=account_id)
        try:
            return [] if info is None else await self._provider.log(info.sandbox_id, lines=lines)
        except errors.SandboxGoneError:
            return []

    async def follow_log(
        self, project_id: str, *, account_id: str, lines: int
    ) -> AsyncIterator[str]:
        """The last lines of the running preview's log and each new one, until it ends; none if it
        does not run."""
        info = await self.running_sandbox(project_id, account_id=account_id)

        async def written() -> AsyncIterator[str]:
            if info is None:
                return
            found = self._provider.follow_log(info.sandbox_id, lines=lines)
            async with aclosing(found):  # type: ignore[type-var]
                with suppress(errors.SandboxGoneError):
                    async for line in found:
                        yield line

        return written()

    async def running_sandbox(self, project_id: str, *, account_id: str) -> SandboxInfo | None:
        """The sandbox that runs by what is known; the provider is not asked."""
        info = (await self._known.get(project_id, account_id)).info
        return info if model.may_be_running(info, now=self._now()) else None

    async def sync(self, project_id: str, *, account_id: str, actor: str) -> Synced:
        """Update the running sandbox to the newest files, or create one if there is none.

        Any number of concurrent callers and replicas create one sandbox, and all get it. A call
        that arrives while another runs gets the result of a run that began after it arrived.
        """
        key = f"{account_id} {project_id}"
        return await self._syncs.run(key, lambda: self._sync(project_id, account_id, actor))

    async def stop(self, project_id: str, *, account_id: str, actor: str) -> StatusReport:
        """End the project's sandbox, if it runs; returns its status. Raises PreviewBusyError while
        one is being created."""
        cause = self._cause(actor)
        async for _ in ConflictRetries():
            preview = await self._known.get(project_id, account_id)
            if not await self._attempts.end_sandboxes(preview):
                raise errors.PreviewBusyError
            transition = model.end(preview, at=cause.at, cause=cause)
            if transition is None or await self._store.apply(transition):
                return await self.status(project_id, account_id=account_id)
        raise errors.PreviewBusyError

    async def require_project(self, project_id: str, *, account_id: str) -> None:
        await self._known.get_project(project_id, account_id)

    async def close(self) -> None:
        await self._checks.stop()
        await self._syncs.stop()
        await self._provider.close()

    async def _sync(self, project_id: str, account_id: str, actor: str) -> Synced:
        wait = AttemptWait(self._policy.wait_sec)
        while True:
            preview = await self._known.get(project_id, account_id, writable=True)
            report, recorded = await self._checks.check(preview)
            synced = None if recorded is None else await self._act_on(report, recorded, wait, actor)
            if synced is not None:
                return synced

    async def _act_on(
        self, report: StatusReport, preview: Preview, wait: AttemptWait, actor: str
    ) -> Synced | None:
        """Act on the report; None if the status must be checked again."""
        if report.status is PreviewStatus.UNKNOWN or report.is_stale:
            raise report.error or UnavailableError(report.message)
        if report.status is PreviewStatus.RUNNING and report.info is not None:
            synced = await self._update_files(preview, report.info, actor)
            if synced is None:  # the provider may report it as running for a while
                await wait.pause()
            return synced
        attempt = preview.attempt
        if attempt is not None and await self._is_pending(preview, attempt, wait, actor):
            return None
        if attempt is not None or preview.info is not None:  # asking about it may have taken long
            await self._known.get_project(preview.project_id, preview.account_id, writable=True)
        return await self._make(preview, actor)

    async def _is_pending(
        self, preview: Preview, attempt: Attempt, wait: AttemptWait, actor: str
    ) -> bool:
        """Whether another caller's attempt must still be waited for, or was just found to have
        created a sandbox."""
        is_over = attempt.is_over(self._now())
        cause = self._cause(actor, "found by its attempt")
        if (is_over or wait.is_lookup_due()) and await self._attempts.adopt(
            preview, attempt, cause
        ):
            return True
        if not is_over:
            await wait.pause()
        return not is_over

    async def _make(self, seen: Preview, actor: str) -> Synced | None:
        """Create a sandbox; None if another caller was first."""
        now = self._now()
        attempt = Attempt(self._provider.make_attempt_id(), now + self._policy.attempt_for)
        quota = await self._quota(seen, now)
        if self._require_storage is not None:
            await self._require_storage(seen.account_id)
        transition = model.begin_attempt(seen, attempt, quota=quota, cause=self._cause(actor))
        if not await self._store.apply(transition):
            return None
        begun = transition.result
        written, _, version = await self._store.changes_since(seen.project_id, 0)
        try:
            made = await self._provider.create(
                project_id=seen.project_id,
                attempt=attempt.id,
                files=written,
                ttl=self._policy.ttl,
            )
        except SandyardError as error:
            await self._end_attempt(begun, attempt, error, actor)
            raise
        info = info_of(made, attempt, files_version=version)
        if await self._attempts.record(begun, info, self._cause(actor)):
            return Synced(seen.project_id, info, len(written), version, "created")
        await self._attempts.kill_unless_recorded(seen.project_id, made)
        return None

    async def quota(self, account_id: str) -> Quota:
        """How many running previews the account may have, and which it has."""
        return await self._read_quota(account_id, self._now())

    async def _quota(self, preview: Preview, now: datetime) -> Quota:
        """If the quota is used up, the previews of deleted projects are ended first, as the job
        does."""
        quota = await self._read_quota(preview.account_id, now)
        if quota.allows(preview.project_id):
            return quota
        for project_id in await self._projects.deleted(quota.others(preview.project_id)):
            with suppress(UnavailableError):
                await self._remove(project_id)
        return await self._read_quota(preview.account_id, now)

    async def _read_quota(self, account_id: str, now: datetime) -> Quota:
        running = await self._store.running(account_id, at=now)
        return Quota(self._policy.per_account, running)

    async def _remove(self, project_id: str) -> None:
        preview = await self._store.find(project_id)
        if preview is not None and await self._attempts.end_sandboxes(preview):
            cause = self._cause(_SYSTEM, "the project is deleted")
            await self._store.apply(model.remove(preview, cause=cause))

    async def _end_attempt(
        self, begun: Preview, attempt: Attempt, error: SandyardError, actor: str
    ) -> None:
        """Abandon an attempt that created nothing; keep one that may have created something."""
        cause = self._cause(actor, error.code)
        if not isinstance(error, errors.ProviderTroubleError) or error.made_nothing:
            await self._attempts.change(
                begun, lambda it: model.abandon_attempt(it, attempt.id, cause=cause)
            )
            return
        until = self._now() + _APPEARS_WITHIN
        await self._attempts.change(
            begun, lambda it: model.shorten_attempt(it, attempt.id, until=until, cause=cause)
        )

    async def _update_files(self, preview: Preview, info: SandboxInfo, actor: str) -> Synced | None:
        """None if the sandbox ended meanwhile."""
        project_id = preview.project_id
        written, deleted, version = await self._store.changes_since(project_id, info.files_version)
        if written or deleted:
            try:
                await self._provider.write_files(info.sandbox_id, written=written, deleted=deleted)
            except errors.SandboxGoneError:
                return None
        cause = self._cause(actor)
        await self._attempts.change(
            preview,
            lambda it: model.record_files(it, info.sandbox_id, version=version, cause=cause),
        )
        count = await self._store.count_files(project_id)
        outcome = model.sync_outcome(written, deleted)
        return Synced(project_id, info, count, version, outcome)

    def _cause(self, actor: str, reason: str | None = None) -> Cause:
        return Cause.by(actor, self._clock, reason=reason)

    def _now(self) -> datetime:
        return utc_time(self._clock.now())
