"""Reading and changing one sandbox of the pool."""

import re
from collections.abc import Callable

from sandyard.broker.pool.errors import RowBusyError
from sandyard.broker.pool.model import Sandbox, Tombstone
from sandyard.broker.pool.ports import PoolStore
from sandyard.broker.queue.assignment import SandboxAssigner
from sandyard.broker.queue.model import becomes_free
from sandyard.kit.changes.transitions import Cause, ConflictRetries, Transition
from sandyard.kit.clock import Clock

_SANDBOX_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")

Decide = Callable[[Sandbox | Tombstone | None, Cause], Transition[Sandbox] | None]
"""The change of the row; None for no change."""


def is_sandbox_id(text: str) -> bool:
    """Whether a sandbox could have this id."""
    return bool(_SANDBOX_ID.match(text))


class SandboxChanges:
    """Reads and changes single sandboxes; one that becomes free is assigned to who waits for it."""

    def __init__(self, store: PoolStore, *, clock: Clock, assigner: SandboxAssigner) -> None:
        self._store = store
        self._assigner = assigner
        self._clock = clock

    async def find(self, sandbox_id: str) -> Sandbox | Tombstone | None:
        """The row or tombstone with this id; None, without a read, for an invalid id."""
        return await self._store.find(sandbox_id) if is_sandbox_id(sandbox_id) else None

    async def change(
        self, sandbox_id: str, by: str, decide: Decide
    ) -> tuple[Sandbox | Tombstone, bool]:
        """Read, decide and apply; retries on conflicts, each time with the current time. Returns
        the row and whether it changed. Raises RowBusyError."""
        async for _ in ConflictRetries():
            row = await self.find(sandbox_id)
            transition = decide(row, Cause.by(by, self._clock))
            if transition is None:
                assert row is not None  # noqa: S101 - an unknown id is an error in every decision
                return row, False
            if (await self._assigner.apply([transition]))[0]:
                return await self._as_written(transition), True
        raise RowBusyError

    async def _as_written(self, transition: Transition[Sandbox]) -> Sandbox:
        """A freed sandbox may have been reserved in the same write."""
        if not becomes_free(transition):
            return transition.result
        row = await self._store.find(transition.result.sandbox_id)
        return row if isinstance(row, Sandbox) else transition.result
