"""Sessions into the sandboxes of an account."""

import asyncio
from typing import NoReturn

from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.node import SandboxNode, run_id_of
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.platform.sandboxes.runs.activity import NOTED_SEC, Activity
from sandyard.runtime.errors import NotRunningError, RunNotFoundError
from sandyard.runtime.sessions.ports import Session


class Sessions:
    def __init__(self, node: SandboxNode, activity: Activity) -> None:
        self._node = node
        self._activity = activity

    async def get_sandbox(self, sandbox_id: str, *, account_id: str) -> Sandbox:
        """SandboxUnknownError if it is not this account's."""
        return await self._node.get(sandbox_id, account_id=account_id)

    async def open(self, sandbox_id: str, *, account_id: str) -> Session:
        """A session in a running sandbox of this account. SandboxUnknownError, NotRunningError,
        SandboxElsewhereError."""
        return await self.into(await self.get_sandbox(sandbox_id, account_id=account_id))

    async def into(self, sandbox: Sandbox) -> Session:
        """A session in this sandbox, without an access check. Raises NotRunningError,
        SandboxElsewhereError."""
        if sandbox.status is not Status.RUNNING:
            raise _not_running(sandbox)
        self._node.require_here(sandbox)
        await self._activity.note(sandbox)
        try:
            return await self._node.runtime.session(run_id_of(sandbox))
        except RunNotFoundError as error:
            raise NotRunningError from error

    async def keep_using(self, sandbox_id: str, *, account_id: str) -> NoReturn:
        """Record the sandbox as used, until cancelled."""
        while True:
            with retried_later("note-use", sandbox_id):
                sandbox = await self.get_sandbox(sandbox_id, account_id=account_id)
                await self._activity.note(sandbox)
            await asyncio.sleep(NOTED_SEC)


def _not_running(sandbox: Sandbox) -> NotRunningError:
    """With the reason of its last end, if it had one."""
    if sandbox.status_reason is None:
        return NotRunningError()
    reason = sandbox.status_reason.rstrip(".")
    return NotRunningError(f"This is not running now. It ended: {reason}. Start it again.")
