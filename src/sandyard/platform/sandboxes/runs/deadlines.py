"""Deadlines of running sandboxes, as set by their owners."""

from sandyard.platform.access.principal import Principal
from sandyard.platform.sandboxes.model import Status
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
