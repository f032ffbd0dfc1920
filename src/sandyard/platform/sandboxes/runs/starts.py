"""The starts of sandboxes in progress on this server."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial

from sandyard.kit.errors import SandyardError, UnavailableError
from sandyard.kit.wired import wired
from sandyard.platform.sandboxes.model import RunOptions, Sandbox, Status
from sandyard.platform.sandboxes.network.enforcement import SandboxNetworks
from sandyard.platform.sandboxes.node import SandboxNode, run_id_of
from sandyard.platform.sandboxes.ports import StartVariables
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.platform.sandboxes.runs.end_model import SYSTEM
from sandyard.platform.sandboxes.runs.program import limits_of, program_of
from sandyard.platform.sandboxes.runs.recorder import RunRecorder
from sandyard.platform.sandboxes.runs.warm import WarmSandboxes
from sandyard.platform.templates.model import Template
from sandyard.runtime.errors import start_failure
from sandyard.runtime.model import Ended, RunId

_POLL_SEC = 0.1


@wired
class SandboxStarts:
    """A start continues when nobody waits for it any more, and its outcome is recorded."""

    node: SandboxNode
    recorder: RunRecorder
    variables: StartVariables
    networks: SandboxNetworks
    warm: WarmSandboxes | None

    def __post_init__(self) -> None:
        self._runtime = self.node.runtime
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def find(self, sandbox_id: str) -> "asyncio.Task[None] | None":
        return self._under_way.get(sandbox_id)

    async def wait(self, sandbox: Sandbox) -> Sandbox:
        """The sandbox when it has started; still `starting` if that takes too long. Raises what
        kept it from starting, also if another server began that and is gone."""
        task = self.find(sandbox.sandbox_id)
        get = partial(self.node.get, sandbox.sandbox_id, account_id=sandbox.owner_account_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.node.start_wait_sec):
                if task is not None:
                    await asyncio.shield(task)
                while (now := await get()).status is Status.STARTING:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_SEC)
                if now.status is not Status.RUNNING:
                    run = await self._runtime.find(run_id_of(now))
                    if isinstance(run, Ended) and not run.has_run:
                        raise start_failure(run.error_code, run.message)
                return now
        return await get()

    def begin(
        self,
        sandbox: Sandbox,
        attempt: int,
        template: Template | None,
        options: RunOptions,
        *,
        actor: str,
    ) -> None:
        """Start this attempt in the background."""
        run = self._run(sandbox, attempt, template, options, actor)
        task = asyncio.create_task(run)
        self._under_way[sandbox.sandbox_id] = task
        task.add_done_callback(partial(self._finish, sandbox.sandbox_id))

    def _finish(self, sandbox_id: str, task: asyncio.Task[None]) -> None:
        self._under_way.pop(sandbox_id, None)
        if not task.cancelled():
            task.exception()  # it is recorded, even if nobody waits for it

    async def _run(
        self,
        sandbox: Sandbox,
        attempt: int,
        template: Template | None,
        options: RunOptions,
        actor: str,
    ) -> None:
        """Start the machine and record the outcome, even if nobody waits for it."""
        run_id = RunId("sandbox", sandbox.sandbox_id, str(attempt))
        try:
            variables = await self.variables.of_sandbox(sandbox)
            secrets = await self.variables.secrets_of(sandbox, run=str(run_id))
            mounts = await self.node.mounts_of(sandbox)
            program = program_of(sandbox, template, variables, options, secrets, mounts)
            limits = limits_of(sandbox, self.node.processes, self.node.storage_bytes)
            limits = replace(limits, max_running_sec=options.seconds or limits.max_running_sec)
            taken = self.warm and await self.warm.take(template, program, limits, to=run_id)
            running = taken or await self._runtime.start(run_id, program, limits)
        except UnavailableError:
            raise  # unknown whether it runs: the reconciler finds out
        except SandyardError as error:
            await self._record_failed_start(sandbox, run_id, error)
            raise
        now = await self.recorder.record_started(
            sandbox.sandbox_id, attempt, running, actor=actor
        ) or await self._find_running(sandbox.sandbox_id, attempt)
        if now is None:
            await self._runtime.stop(run_id)  # it was stopped meanwhile
        else:
            await self.networks.catch_up(sandbox, now, run_id)
        if sandbox.attempt:
            with retried_later("forget", sandbox.sandbox_id):
                await self._runtime.forget(run_id_of(sandbox))

    async def _record_failed_start(
        self, sandbox: Sandbox, run_id: RunId, error: SandyardError
    ) -> None:
        """With the time that its program ran, if it did."""
        ended = await self._runtime.find(run_id)
        attempt = int(run_id.attempt)
        if isinstance(ended, Ended):
            tried = replace(sandbox, attempt=attempt)
            await self.recorder.record_ended(tried, ended, actor=SYSTEM)
        else:
            await self.recorder.record_failed_start(sandbox.sandbox_id, attempt, error)

    async def _find_running(self, sandbox_id: str, attempt: int) -> Sandbox | None:
        """The sandbox, if the reconciler was faster to record that it runs."""
        found = await self.node.store.find(sandbox_id)
        is_running = found and (found.attempt, found.status) == (attempt, Status.RUNNING)
        return found if is_running else None

    async def close(self) -> None:
        """Drop the starts in progress; the next server continues them."""
        for task in list(self._under_way.values()):
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        if self.warm is not None:
            await self.warm.close()
