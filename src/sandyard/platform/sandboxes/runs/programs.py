"""The program of a sandbox: started, stopped, and its log."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sandyard.platform.access.principal import Principal
from sandyard.platform.sandboxes.errors import NoProgramError
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.node import SandboxNode, run_id_of
from sandyard.platform.sandboxes.ports import SandboxVariables, TemplateFinder
from sandyard.platform.sandboxes.runs.program import program_of
from sandyard.platform.sandboxes.runs.recorder import RunRecorder
from sandyard.runtime.errors import NotRunningError, RunNotFoundError
from sandyard.runtime.model import Running


@dataclass(frozen=True, slots=True)
class SandboxPrograms:
    """Each change is about a running sandbox of the caller, and returns it. Raises
    SandboxUnknownError, NotRunningError, NoProgramError, SandboxElsewhereError."""

    _node: SandboxNode
    _templates: TemplateFinder
    _recorder: RunRecorder
    _variables: SandboxVariables

    async def start(self, sandbox_id: str, *, by: Principal) -> Sandbox:
        """Return when it listens, has failed or did not listen in time; no effect if it runs."""
        sandbox = await self._require_running(sandbox_id, by)
        if sandbox.program is not None and sandbox.program["status"] in ("starting", "running"):
            return sandbox
        return await self.restart(sandbox_id, by=by)

    async def restart(self, sandbox_id: str, *, by: Principal) -> Sandbox:
        """With the files and variables that there are now, as `start`."""
        sandbox = await self._require_running(sandbox_id, by)
        template = await self._templates.find(by.account_id, sandbox.template_id)
        program = program_of(sandbox, template, await self._variables.of_sandbox(sandbox))
        runtime = self._node.runtime
        return await self._change(sandbox, lambda run: runtime.start_program(run, program), by)

    async def stop(self, sandbox_id: str, *, by: Principal) -> Sandbox:
        """It stays stopped until it is requested again; the sandbox runs on."""
        sandbox = await self._require_running(sandbox_id, by)
        return await self._change(sandbox, self._node.runtime.stop_program, by)

    async def tail_logs(self, sandbox_id: str, *, account_id: str, lines: int) -> Sequence[str]:
        sandbox = await self._node.get_started(sandbox_id, account_id=account_id)
        try:
            return await self._node.runtime.tail_logs(run_id_of(sandbox), lines=lines)
        except RunNotFoundError:
            return []

    async def follow_logs(
        self, sandbox_id: str, *, account_id: str, lines: int
    ) -> AsyncIterator[str]:
        """The last lines and each new one, until the run has ended."""
        sandbox = await self._node.get_started(sandbox_id, account_id=account_id)
        followed = self._node.runtime.follow_logs(run_id_of(sandbox), lines=lines)
        return _until_forgotten(followed)

    async def _require_running(self, sandbox_id: str, by: Principal) -> Sandbox:
        sandbox = await self._node.get(sandbox_id, account_id=by.account_id)
        if sandbox.status is not Status.RUNNING:
            raise NotRunningError
        self._node.require_here(sandbox)
        if sandbox.program is None:
            raise NoProgramError
        return sandbox

    async def _change(
        self, sandbox: Sandbox, change: Callable[..., Awaitable[Running]], by: Principal
    ) -> Sandbox:
        try:
            running = await change(run_id_of(sandbox))
        except RunNotFoundError as error:
            raise NotRunningError from error
        await self._recorder.record_program(sandbox, running, actor=by.actor)
        return await self._node.get(sandbox.sandbox_id, account_id=by.account_id)


async def _until_forgotten(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    """A program that the runtime has forgotten has no more lines."""
    with suppress(RunNotFoundError):
        async for line in lines:
            yield line
