"""The files of an account's sandboxes, whether they run or not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from sandyard.platform.access.principal import Principal
from sandyard.platform.quotas.storage import StorageQuota
from sandyard.platform.sandboxes.errors import QuotaExceededError
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.node import SandboxNode
from sandyard.platform.sandboxes.runs.call_machines import MOST_SEC, CallMachines
from sandyard.platform.sandboxes.runs.node_files import NodeFiles
from sandyard.platform.sandboxes.runs.program import limits_of
from sandyard.platform.sandboxes.runs.recorder import RunRecorder
from sandyard.platform.sessions.service import Sessions
from sandyard.runtime.model import Ended, Program
from sandyard.runtime.sessions.ports import Files


@dataclass(frozen=True, slots=True)
class SandboxFiles:
    node: SandboxNode
    sessions: Sessions
    machines: CallMachines
    recorder: RunRecorder
    storage: StorageQuota

    @asynccontextmanager
    async def open(
        self, sandbox_id: str, *, by: Principal, writes: bool = False
    ) -> AsyncIterator[Files]:
        """The files of one that runs; else those of its snapshot, in a machine that has only them
        and ends afterwards. What `writes` changed there is stored then, or not at all.

        Raises SandboxUnknownError, NotRunningError if it has no files yet, SandboxElsewhereError,
        FilesBusyError; of `writes`, QuotaExceededError, StoreUnavailableError, and
        SandboxChangedError if it was started meanwhile."""
        account_id, stored = by.account_id, NodeFiles(self.node, self.recorder)
        sandbox = await self.sessions.get_sandbox(sandbox_id, account_id=account_id)
        if sandbox.is_active or not sandbox.attempt:
            yield (await self.sessions.into(sandbox)).files
            return
        async with self.machines.turn(account_id):
            sandbox = await self.sessions.get_sandbox(sandbox_id, account_id=account_id)
            if not sandbox.is_active and await stored.recover(sandbox, actor=by.actor):
                sandbox = await self.sessions.get_sandbox(sandbox_id, account_id=account_id)
            if sandbox.is_active or sandbox.latest_snapshot_id is None:
                yield (await self.sessions.into(sandbox)).files
                return
            await stored.require(sandbox)
            program = Program(
                None, sandbox.latest_snapshot_id, root=sandbox.environment, restores_memory=False
            )
            limits = limits_of(sandbox, self.node.processes, self.node.storage_bytes)
            limits = replace(limits, max_running_sec=MOST_SEC)
            store = partial(self._store, sandbox, by.actor) if writes else None
            async with self.machines.start(sandbox_id, program, limits, store) as session:
                yield session.files

    async def _store(self, sandbox: Sandbox, writer: str, ended: Ended) -> None:
        grown = (ended.snapshot.size_bytes if ended.snapshot else 0) - (sandbox.snapshot_bytes or 0)
        if grown > 0:
            account_id = sandbox.owner_account_id
            await self.storage.require(account_id, grown, error=QuotaExceededError)
        await self.recorder.record_files(sandbox, ended, actor=writer)
