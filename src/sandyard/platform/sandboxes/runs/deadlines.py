"""Deadlines of running sandboxes, as set by their owners."""

from sandyard.kit.clock import utc_time
from sandyard.platform.access.principal import Principal
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.node import SandboxNode, run_id_of
from sandyard.platform.sandboxes.runs.recorder import RunRecorder
from sandyard.runtime.errors import NotRunningError, RunNotFoundError


class Deadlines:
    def __init__(self, node: SandboxNode, recorder: RunRecorder) -> None:
        self._node = node
        self._recorder = recorder

    async def set(self, sandbox_id: str, deadline_at: float, *, by: Principal) -> None:
        """Move the deadline of a running sandbox, later or earlier. Raises SandboxUnknownError,
        NotRunningError, SandboxElsewhereError."""
        sandbox = await self._node.get(sandbox_id, account_id=by.account_id)
        if sandbox.status is not Status.RUNNING:
            raise NotRunningError
        self._node.require_here(sandbox)
        try:
            running = await self._node.runtime.extend(run_id_of(sandbox), deadline_at=deadline_at)
        except RunNotFoundError as error:
            raise NotRunningError from error
        await self._recorder.record_deadline(sandbox_id, running, actor=by.actor)

    async def extend(self, sandbox_id: str, *, seconds: int, by: Principal) -> Sandbox:
        """It runs for at least this long from now on; a later deadline stays. Raises as `set`."""
        sandbox = await self._node.get(sandbox_id, account_id=by.account_id)
        deadline_at = self._node.clock.now() + seconds
        if sandbox.timeout_at is None or sandbox.timeout_at < utc_time(deadline_at):
            await self.set(sandbox_id, deadline_at, by=by)
        return await self._node.get(sandbox_id, account_id=by.account_id)
