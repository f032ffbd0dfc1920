"""Attempts to create a sandbox, from their record to their outcome."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sandyard.kit.changes.transitions import Cause, ConflictRetries, Transition
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.previews import model
from sandyard.previews.errors import PreviewBusyError, PreviewElsewhereError, SandboxGoneError
from sandyard.previews.model import Attempt, Preview, SandboxInfo
from sandyard.previews.ports import AccountLookup, PreviewProvider, PreviewSandbox, PreviewStore

_POLL_SEC = 0.1
_LOOKUP_EVERY_SEC = 2.0


@dataclass(frozen=True, slots=True)
class Attempts:
    """Finds, records and ends the sandboxes of attempts. Raises PreviewElsewhereError for those of
    another node, until they have certainly ended there."""

    store: PreviewStore
    provider: PreviewProvider
    accounts: AccountLookup
    clock: Clock
    ttl: timedelta
    locks: KeyedLocks = field(default_factory=KeyedLocks)

    async def adopt(self, preview: Preview, attempt: Attempt, cause: Cause) -> bool:
        """Record the sandbox of an attempt whose caller has not; the next sync updates its files.
        False if there is none. One that has certainly made nothing that runs is abandoned."""
        try:
            found = await self._find(preview, attempt)
        except SandboxGoneError as gone:
            cause = replace(cause, reason=gone.reason or gone.message)
            await self.change(
                preview, lambda it: model.abandon_attempt(it, attempt.id, cause=cause)
            )
            return True
        if found is None:
            return False
        info = info_of(found, attempt, files_version=0)
        if not await self.record(preview, info, cause):
            await self.kill_unless_recorded(preview.project_id, found)
        return True

    async def resolve(self, preview: Preview, attempt: Attempt, cause: Cause) -> None:
        """Record the sandbox of an attempt whose time is over, or that it created none."""
        if not await self.adopt(preview, attempt, cause):
            await self.change(
                preview, lambda it: model.abandon_attempt(it, attempt.id, cause=cause)
            )

    async def end_sandboxes(self, preview: Preview) -> bool:
        """End all sandboxes of the preview; False while an attempt is in progress, because its
        caller records the sandbox before it can be ended."""
        now = self._now()
        if preview.attempt is not None:
            if not preview.attempt.is_over(now):
                return False
            with suppress(SandboxGoneError):
                made = await self._find(preview, preview.attempt)
                if made is not None:
                    await self.provider.kill(made.sandbox_id)
        if preview.info is not None and model.may_be_running(preview.info, now=now):
            await self.provider.kill(preview.info.sandbox_id)
        return True

    async def record(self, preview: Preview, info: SandboxInfo, cause: Cause) -> bool:
        """False if the attempt is no longer current, or the account was deactivated meanwhile."""
        if await self.accounts.deactivated([preview.account_id]):
            return False
        checked_at = self._now()
        return await self.change(
            preview, lambda it: model.record_sandbox(it, info, checked_at=checked_at, cause=cause)
        )

    async def kill_unless_recorded(self, project_id: str, sandbox: PreviewSandbox) -> None:
        """For a sandbox that was not recorded: another caller may have recorded it, or created
        one."""
        current = await self.store.find(project_id)
        if current is None or not current.has_sandbox(sandbox.sandbox_id):
            await self.provider.kill(sandbox.sandbox_id)

    async def change(
        self, preview: Preview, decide: Callable[[Preview], Transition[Preview] | None]
    ) -> bool:
        """Decide and apply, again if another change came first; False if there is nothing to
        change."""
        current: Preview | None = preview
        async with self.locks.of(preview.project_id):
            async for _ in ConflictRetries():
                transition = None if current is None else decide(current)
                if transition is None:
                    return False
                if await self.store.apply(transition):
                    return True
                current = await self.store.find(preview.project_id)
        raise PreviewBusyError

    async def _find(self, preview: Preview, attempt: Attempt) -> PreviewSandbox | None:
        try:
            return await self.provider.find_attempt(
                project_id=preview.project_id, attempt=attempt.id
            )
        except PreviewElsewhereError:
            if self._now() < attempt.until + self.ttl:
                raise
            return None  # whatever it created there has ended

    def _now(self) -> datetime:
        return utc_time(self.clock.now())


def info_of(made: PreviewSandbox, attempt: Attempt, *, files_version: int) -> SandboxInfo:
    return SandboxInfo(
        sandbox_id=made.sandbox_id,
        preview_url=made.preview_url,
        start_time=model.to_milliseconds(made.start_time),
        end_time=model.to_milliseconds(made.end_time),
        attempt=attempt.id,
        files_version=files_version,
    )


class AttemptWait:
    """How long to wait for another caller's attempt, or for the end of a sandbox that is gone, and
    how often to ask the provider."""

    def __init__(self, wait_sec: float) -> None:
        self._now = asyncio.get_running_loop().time
        self._busy_at = self._now() + wait_sec
        self._lookup_at = self._now()

    def is_lookup_due(self) -> bool:
        is_time = self._now() >= self._lookup_at
        if is_time:
            self._lookup_at = self._now() + _LOOKUP_EVERY_SEC
        return is_time

    async def pause(self) -> None:
        if self._now() > self._busy_at:
            raise PreviewBusyError
        await asyncio.sleep(_POLL_SEC)
