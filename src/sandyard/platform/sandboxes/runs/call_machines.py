"""Machines that live as long as one call, for files that no running sandbox has."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.platform.sandboxes.errors import FilesBusyError
from sandyard.platform.sandboxes.retried_later import retried_later
from sandyard.runtime.model import Ended, Limits, Program, RunId
from sandyard.runtime.ports import Runtime
from sandyard.runtime.sessions.ports import Session

_Store = Callable[[Ended], Awaitable[None]]
_WAIT_SEC = 60
"""How long one call waits for another."""
MOST_SEC = 600
"""The limit of such a machine."""


class CallMachines:
    """An account has one at a time, as no quota counts them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._locks = KeyedLocks()

    @asynccontextmanager
    async def turn(self, account_id: str) -> AsyncIterator[None]:
        """Raises FilesBusyError."""
        lock = self._locks.of(account_id)
        try:
            await asyncio.wait_for(lock.acquire(), _WAIT_SEC)
        except TimeoutError as error:
            raise FilesBusyError from error
        try:
            yield
        finally:
            lock.release()

    @asynccontextmanager
    async def start(
        self, holder_id: str, program: Program, limits: Limits, store: _Store | None = None
    ) -> AsyncIterator[Session]:
        """In the account's turn. Without `store`, or if that or the call fails, changes of its own
        files are dropped."""
        run_id, kept = RunId("files", holder_id, secrets.token_hex(8)), None
        try:
            await self._runtime.check()
            await self._runtime.start(run_id, program, limits)
            yield await self._runtime.session(run_id)
            kept = store
        finally:
            await asyncio.shield(self._end(run_id, kept))

    async def _end(self, run_id: RunId, store: _Store | None) -> None:
        if await self._runtime.find(run_id) is None:
            return
        ended, is_stored = await self._runtime.stop(run_id), False
        try:
            if store is not None:
                await store(ended)
                is_stored = True
        finally:
            with retried_later("files", run_id.id):
                if ended.snapshot is not None and not is_stored:
                    await self._runtime.delete_snapshot(ended.snapshot.id)
                await self._runtime.forget(run_id)
