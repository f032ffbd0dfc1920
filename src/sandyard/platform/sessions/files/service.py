"""The files of an account's sandboxes, whether they run or not."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.platform.access.principal import Principal
from sandyard.platform.quotas.storage import StorageQuota
from sandyard.platform.sandboxes.errors import FilesBusyError, QuotaExceededError
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.node import SandboxNode
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.platform.sandboxes.runs.node_files import NodeFiles
from sandyard.platform.sandboxes.runs.program import limits_of
from sandyard.platform.sandboxes.runs.recorder import RunRecorder
from sandyard.platform.sessions.service import Sessions
from sandyard.runtime.model import Ended, Program, RunId
from sandyard.runtime.sessions.ports import Files

_LONGEST_SEC = 600
"""How long one call may use the files of a sandbox that does not run."""
_WAIT_SEC = 60
"""How long one waits for another."""


class SandboxFiles:
    def __init__(
        self, node: SandboxNode, sessions: Sessions, recorder: RunRecorder, storage: StorageQuota
    ) -> None:
        self._node = node
        self._runtime = node.runtime
        self._sessions = sessions
        self._recorder = recorder
        self._storage = storage
        self._stored = NodeFiles(node, recorder)
        self._locks = KeyedLocks()

    @asynccontextmanager
    async def open(
        self, sandbox_id: str, *, by: Principal, writes: bool = False
    ) -> AsyncIterator[Files]:
        """The files of one that runs; else those of its snapshot, in a machine that has only them
        and ends afterwards. What `writes` changed there is stored then, or not at all.

        An account has one such machine at a time, as no quota counts it. Raises
        SandboxUnknownError, NotRunningError if it has no files yet, SandboxElsewhereError,
        FilesBusyError; of `writes`, QuotaExceededError, StoreUnavailableError, and
        SandboxChangedError if it was started meanwhile."""
        sandbox = await self._sessions.get_sandbox(sandbox_id, account_id=by.account_id)
        if sandbox.is_active or not sandbox.attempt:
            yield (await self._sessions.into(sandbox)).files
            return
        lock = self._locks.of(by.account_id)
        try:
            await asyncio.wait_for(lock.acquire(), _WAIT_SEC)
        except TimeoutError as error:
            raise FilesBusyError from error
        try:
            async with self._snapshot(sandbox_id, by, writes=writes) as files:
                yield files
        finally:
            lock.release()

    @asynccontextmanager
    async def _snapshot(
        self, sandbox_id: str, by: Principal, *, writes: bool
    ) -> AsyncIterator[Files]:
        sandbox = await self._sessions.get_sandbox(sandbox_id, account_id=by.account_id)
        if not sandbox.is_active and await self._stored.recover(sandbox, actor=by.actor):
            sandbox = await self._sessions.get_sandbox(sandbox_id, account_id=by.account_id)
        if sandbox.is_active or sandbox.latest_snapshot_id is None:
            yield (await self._sessions.into(sandbox)).files
            return
        await self._stored.require(sandbox)
        run_id = RunId("files", sandbox_id, secrets.token_hex(8))
        try:
            yield await self._start(run_id, sandbox)
        except BaseException:
            await asyncio.shield(self._end(run_id, sandbox, writer=None))
            raise
        await asyncio.shield(self._end(run_id, sandbox, writer=by.actor if writes else None))

    async def _start(self, run_id: RunId, sandbox: Sandbox) -> Files:
        program = Program(
            None, sandbox.latest_snapshot_id, root=sandbox.environment, restores_memory=False
        )
        limits = limits_of(sandbox, self._node.processes, self._node.storage_bytes)
        await self._runtime.check()
        await self._runtime.start(run_id, program, replace(limits, max_running_sec=_LONGEST_SEC))
        return (await self._runtime.session(run_id)).files

    async def _end(self, run_id: RunId, sandbox: Sandbox, *, writer: str | None) -> None:
        """Store the files for `writer`; without one, or if that is refused, they are dropped."""
        if await self._runtime.find(run_id) is None:
            return
        ended, is_stored = await self._runtime.stop(run_id), False
        try:
            if writer is not None:
                await self._store(ended, sandbox, writer)
                is_stored = True
        finally:
            with retried_later("files", sandbox.sandbox_id):
                if ended.snapshot is not None and not is_stored:
                    await self._runtime.delete_snapshot(ended.snapshot.id)
                await self._runtime.forget(run_id)

    async def _store(self, ended: Ended, sandbox: Sandbox, writer: str) -> None:
        grown = (ended.snapshot.size_bytes if ended.snapshot else 0) - (sandbox.snapshot_bytes or 0)
        if grown > 0:
            account_id = sandbox.owner_account_id
            await self._storage.require(account_id, grown, error=QuotaExceededError)
        await self._recorder.record_files(sandbox, ended, actor=writer)
