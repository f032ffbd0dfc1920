"""Deadlines of running sandboxes, as set by their owners."""

from sandyard.kit.node import require_here
from sandyard.platform.access.principal import Principal
from sandyard.platform.sandboxes.errors import SandboxElsewhereError, SandboxUnknownError
from sandyard.platform.sandboxes.model import Status
from sandyard.platform.sandboxes.ports import SandboxStore
from sandyard.platform.sandboxes.runs.recorder import RunRecorder, run_id_of
from sandyard.runtime.errors import NotRunningError, RunNotFoundError
from sandyard.runtime.ports import Runtime


class Deadlines:
    def __init__(
        self, store: SandboxStore, runtime: Runtime, recorder: RunRecorder, *, node: str
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._recorder = recorder
        self._node = node

    async def set(self, sandbox_id: str, deadline_at: float, *, by: Principal) -> None:
        """Move the deadline of a running sandbox, later or earlier. Raises SandboxUnknownError,
        NotRunningError, SandboxElsewhereError."""
        sandbox = await self._store.find(sandbox_id, account_id=by.account_id)
        if sandbox is None:
            raise SandboxUnknownError
        if sandbox.status is not Status.RUNNING:
            raise NotRunningError
        require_here(sandbox.node, node=self._node, error=SandboxElsewhereError)
        try:
            running = await self._runtime.extend(run_id_of(sandbox), deadline_at=deadline_at)
        except RunNotFoundError as error:
            raise NotRunningError from error
        await self._recorder.record_deadline(sandbox_id, running, actor=by.actor)
