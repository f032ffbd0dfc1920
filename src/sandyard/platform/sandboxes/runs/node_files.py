"""The files that this node has of a sandbox that is to be started here."""

from collections.abc import Sequence

from sandyard.platform.sandboxes.model import Sandbox, require_files_here
from sandyard.platform.sandboxes.node import SandboxNode, run_id_of
from sandyard.platform.sandboxes.runs.recorder import RunRecorder
from sandyard.runtime.errors import SnapshotNotFoundError
from sandyard.runtime.model import Ended, RunState


class NodeFiles:
    def __init__(self, node: SandboxNode, recorder: RunRecorder) -> None:
        self._node = node
        self._runtime = node.runtime
        self._recorder = recorder

    async def recover(self, sandbox: Sandbox, *, actor: str) -> bool:
        """Record the files of the last run of an inactive sandbox, if this node has them and they
        are not recorded; anything of it that still runs is ended first."""
        for run in await self._runs_of(sandbox):
            ended = run if isinstance(run, Ended) else await self._runtime.stop(run.run_id)
            if await self._recorder.recover(sandbox, ended, actor=actor):
                return True
        return False

    async def require(self, sandbox: Sandbox) -> None:
        """Raises SandboxElsewhereError if a start here would lack files that another node may have,
        SnapshotNotFoundError if its snapshot is missing."""
        has_snapshot = await self._has_snapshot(sandbox)
        require_files_here(sandbox, node=self._node.name, has_snapshot=has_snapshot)
        if sandbox.latest_snapshot_id is not None and not has_snapshot:
            raise SnapshotNotFoundError

    async def holder(self, sandbox: Sandbox) -> str | None:
        """This node's name if it can restore the sandbox's snapshot."""
        return self._node.name if await self._has_snapshot(sandbox) else None

    async def _runs_of(self, sandbox: Sandbox) -> Sequence[RunState]:
        """Runs that may have unrecorded files: attempts after the last run may have failed."""
        if not sandbox.has_all_files_stored:
            held = await self._runtime.run_ids("sandbox")
            run_ids = [each for each in held if each.id == sandbox.sandbox_id]
        else:
            run_ids = [run_id_of(sandbox)] if sandbox.attempt else []
        found = [await self._runtime.refresh(each) for each in run_ids]
        return [run for run in found if run is not None]

    async def _has_snapshot(self, sandbox: Sandbox) -> bool:
        snapshot_id = sandbox.latest_snapshot_id
        return snapshot_id is not None and await self._runtime.has_snapshot(snapshot_id)
