"""What an account does with its sandboxes. The runtime is asked for what really runs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import SandyardError, UnavailableError
from sandyard.kit.ids import IdMaker, is_resource_id
from sandyard.kit.paging import Page
from sandyard.platform.runtime.errors import NotHeldError, SnapshotNotFoundError
from sandyard.platform.runtime.model import Limits, Owner, Program, Repository, Running
from sandyard.platform.runtime.ports import Runtime
from sandyard.platform.sandboxes.endings import Endings
from sandyard.platform.sandboxes.errors import (
    NeverStartedError,
    ProjectNotUsableError,
    ProjectReadOnlyError,
    SandboxChangedError,
    SandboxElsewhereError,
    SandboxUnknownError,
    TemplateNotUsableError,
)
from sandyard.platform.sandboxes.model import (
    Changes,
    NewSandbox,
    Quota,
    Sandbox,
    Status,
    decide_change,
    decide_start,
    require_minimum,
)
from sandyard.platform.sandboxes.ports import SandboxQuery, SandboxStore, Usable
from sandyard.platform.usage.model import PriceList

logger = logging.getLogger(__name__)

_ATTEMPTS = 20
_LOOK_SEC = 0.1
_GIGABYTE = 2**30


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """What one sandbox and one account may take, and how long a start is waited for."""

    quota: Quota
    prices: PriceList
    node: str
    processes: int
    storage_bytes: int
    start_wait_sec: float = 60


class Sandboxes:
    def __init__(
        self,
        store: SandboxStore,
        runtime: Runtime,
        endings: Endings,
        *,
        clock: Clock,
        make_sandbox_id: IdMaker,
        make_usage_id: IdMaker,
        policy: SandboxPolicy,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._endings = endings
        self._clock = clock
        self._make_sandbox_id = make_sandbox_id
        self._make_usage_id = make_usage_id
        self._policy = policy
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def create(self, new: NewSandbox, *, account_id: str) -> Sandbox:
        """A sandbox of a template that the account may use, in a project of its own."""
        usable = await self._usable(account_id, new.template_id, new.project_id)
        require_minimum(
            cpu=new.cpu_spec,
            memory_gb=new.memory_spec,
            min_cpu=usable.min_cpu,
            min_memory_gb=usable.min_memory_gb,
        )
        return await self._store.add(
            replace(new, project_id=usable.project_id),
            sandbox_id=self._make_sandbox_id(),
            account_id=account_id,
            now=self._now(),
        )

    async def get(self, sandbox_id: str, *, account_id: str) -> Sandbox:
        if not is_resource_id("sbx", sandbox_id):
            raise SandboxUnknownError
        found = await self._store.find(sandbox_id, account_id=account_id, now=self._now())
        if found is None:
            raise SandboxUnknownError
        return found

    async def list(
        self, *, account_id: str, query: SandboxQuery, limit: int, cursor: str | None
    ) -> Page[Sandbox]:
        return await self._store.page(
            account_id, query, limit=limit, cursor=cursor, now=self._now()
        )

    async def change(self, sandbox_id: str, changes: Changes, *, account_id: str) -> Sandbox:
        for _ in range(_ATTEMPTS):
            before = await self.get(sandbox_id, account_id=account_id)
            after = decide_change(before, changes)
            usable = await self._usable(
                account_id,
                before.template_id,
                before.project_id,
                needs_template=changes.touches_resources,
            )
            if changes.touches_resources:
                require_minimum(
                    cpu=after.cpu_spec,
                    memory_gb=after.memory_spec,
                    min_cpu=usable.min_cpu,
                    min_memory_gb=usable.min_memory_gb,
                )
            if await self._store.change(before, after, now=self._now()):
                return await self.get(sandbox_id, account_id=account_id)
        raise SandboxChangedError

    async def start(self, sandbox_id: str, *, account_id: str) -> Sandbox:
        """The sandbox, running; or still `starting`, if that takes longer than is waited for.

        However many callers ask at once, one program is started. Raises QuotaExceededError, or
        what kept the program from listening; then the sandbox is `stopped`, with the reason.
        """
        for _ in range(_ATTEMPTS):
            sandbox = await self.get(sandbox_id, account_id=account_id)
            attempt = decide_start(sandbox)
            if attempt is None:
                return await self._until_started(sandbox)
            usable = await self._usable(
                account_id,
                sandbox.template_id,
                sandbox.project_id,
                needs_template=sandbox.latest_snapshot_id is None,
            )
            await self._runtime.check()
            if await self._store.begin(
                sandbox,
                attempt=attempt,
                node=self._policy.node,
                quota=self._policy.quota,
                now=self._now(),
            ):
                task = asyncio.create_task(self._run(sandbox, attempt, usable))
                self._under_way[sandbox_id] = task
                task.add_done_callback(lambda _: self._under_way.pop(sandbox_id, None))
                return await self._until_started(sandbox)
        raise SandboxChangedError

    async def stop(self, sandbox_id: str, *, account_id: str) -> Sandbox:
        """The sandbox, stopped, with a snapshot of its files; as it is, if it does not run."""
        sandbox = await self.get(sandbox_id, account_id=account_id)
        if sandbox.is_active:
            self._require_here(sandbox)
            await self.end(sandbox)
        return await self.get(sandbox_id, account_id=account_id)

    async def recycle(self, sandbox_id: str, *, account_id: str) -> Sandbox:
        """Stop it and give it up for good, with its files; its usage and bills stay."""
        for _ in range(_ATTEMPTS):
            sandbox = await self.get(sandbox_id, account_id=account_id)
            if sandbox.status is Status.RECYCLED:
                return sandbox
            if sandbox.is_active:
                self._require_here(sandbox)
                await self.end(sandbox)
                continue
            if await self._store.recycle(
                sandbox,
                now=self._now(),
                usage_id=self._make_usage_id(),
                storage_rate=self._endings.storage_rate(sandbox),
            ):
                await self._forget(sandbox)
                return await self.get(sandbox_id, account_id=account_id)
        raise SandboxChangedError

    async def tail_logs(self, sandbox_id: str, *, account_id: str, lines: int) -> Sequence[str]:
        sandbox = await self._with_logs(sandbox_id, account_id)
        try:
            return await self._runtime.tail_logs(owner_of(sandbox), lines=lines)
        except NotHeldError:
            return []

    async def follow_logs(
        self, sandbox_id: str, *, account_id: str, lines: int
    ) -> AsyncIterator[str]:
        """The last lines and each new one, until the program has ended."""
        sandbox = await self._with_logs(sandbox_id, account_id)
        return _until_forgotten(self._runtime.follow_logs(owner_of(sandbox), lines=lines))

    async def close(self) -> None:
        """Let go of starts that are under way; the next server takes them up."""
        for task in list(self._under_way.values()):
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _usable(
        self,
        account_id: str,
        template_id: str,
        project_id: str | None,
        *,
        needs_template: bool = True,
    ) -> Usable:
        usable = await self._store.find_usable(
            account_id, template_id=template_id, project_id=project_id
        )
        if usable.repository_url is None and needs_template:
            raise TemplateNotUsableError
        if usable.project_id is None:
            raise ProjectNotUsableError
        if usable.project_is_archived:
            raise ProjectReadOnlyError
        return usable

    async def _run(self, sandbox: Sandbox, attempt: int, usable: Usable) -> None:
        """Start the program and record how that went, whoever still waits for it."""
        owner = Owner("sandbox", sandbox.sandbox_id, str(attempt))
        program = Program(Repository(usable.repository_url or ""), sandbox.latest_snapshot_id)
        limits = Limits(
            cpu=sandbox.cpu_spec,
            memory_bytes=int(sandbox.memory_spec * _GIGABYTE),
            processes=self._policy.processes,
            storage_bytes=self._policy.storage_bytes,
            max_running_sec=sandbox.max_running_seconds,
        )
        try:
            running = await self._runtime.start(owner, program, limits)
        except UnavailableError:
            raise  # whether it runs is not known: the reconciler finds out
        except SandyardError as error:
            await self._endings.record_failed_start(sandbox, attempt, error)
            if isinstance(error, SnapshotNotFoundError):
                await self._drop_snapshot(sandbox.sandbox_id)
            raise
        if not await self.record_running(sandbox, attempt, running) and not (
            await self._is_recorded(sandbox.sandbox_id, attempt)  # the reconciler was faster
        ):
            await self._runtime.stop(owner)  # it was stopped meanwhile
        if sandbox.attempt:
            with suppress(SandyardError):
                await self._runtime.forget(owner_of(sandbox))

    async def _drop_snapshot(self, sandbox_id: str) -> None:
        """Its files are gone; the next start begins with the template's."""
        found = await self._store.find(sandbox_id, account_id=None, now=self._now())
        if found is not None:
            await self._store.drop_snapshot(
                found,
                now=self._now(),
                usage_id=self._make_usage_id(),
                storage_rate=self._endings.storage_rate(found),
            )

    async def record_running(self, sandbox: Sandbox, attempt: int, running: Running) -> bool:
        return await self._store.record_running(
            sandbox.sandbox_id,
            attempt=attempt,
            usage_id=self._make_usage_id(),
            url=running.url,
            hourly_rate=self._policy.prices.of_running(
                cpu=sandbox.cpu_spec, memory_gb=sandbox.memory_spec
            ),
            started_at=utc_time(running.started_at),
            timeout_at=utc_time(running.deadline_at),
        )

    async def _is_recorded(self, sandbox_id: str, attempt: int) -> bool:
        found = await self._store.find(sandbox_id, account_id=None, now=self._now())
        return found is not None and (found.attempt, found.status) == (attempt, Status.RUNNING)

    async def _until_started(self, sandbox: Sandbox) -> Sandbox:
        task = self._under_way.get(sandbox.sandbox_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._policy.start_wait_sec):
                if task is not None:
                    await asyncio.shield(task)
                while True:
                    now = await self.get(sandbox.sandbox_id, account_id=sandbox.owner_account_id)
                    if now.status is not Status.STARTING:
                        return now
                    await asyncio.sleep(_LOOK_SEC)
        return await self.get(sandbox.sandbox_id, account_id=sandbox.owner_account_id)

    async def end(self, sandbox: Sandbox, *, because: str | None = None) -> None:
        """End its program and record that; `because` is why, if its owner did not ask for it."""
        try:
            ended = await self._runtime.stop(owner_of(sandbox))
        except NotHeldError:
            if task := self._under_way.get(sandbox.sandbox_id):  # it is about to be held
                await asyncio.sleep(_LOOK_SEC)
                if not task.done():
                    return await self.end(sandbox, because=because)
            await self._endings.record_lost(sandbox)
        else:
            await self._endings.record(sandbox, ended, because=because)

    async def _forget(self, sandbox: Sandbox) -> None:
        with suppress(SandyardError):  # what fails here is swept up by the reconciler
            await self._runtime.forget(owner_of(sandbox))
            if sandbox.latest_snapshot_id is not None:
                await self._runtime.delete_snapshot(sandbox.latest_snapshot_id)

    async def _with_logs(self, sandbox_id: str, account_id: str) -> Sandbox:
        sandbox = await self.get(sandbox_id, account_id=account_id)
        if not sandbox.attempt:
            raise NeverStartedError
        self._require_here(sandbox)
        return sandbox

    def _require_here(self, sandbox: Sandbox) -> None:
        if sandbox.node not in (None, self._policy.node):
            raise SandboxElsewhereError

    def _now(self) -> datetime:
        return utc_time(self._clock.now())


async def _until_forgotten(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    """Of a program that the runtime has forgotten there are no lines any more."""
    with suppress(NotHeldError):
        async for line in lines:
            yield line


def owner_of(sandbox: Sandbox) -> Owner:
    """Whose program it is that the sandbox's last attempt runs or ran."""
    return Owner("sandbox", sandbox.sandbox_id, str(sandbox.attempt))
