"""Looks after the limits that the kernel does not hold for a whole tree of processes."""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from sandyard.runtime.local import processes, workspace
from sandyard.runtime.local.records import Spec
from sandyard.runtime.local.spawn import first_of
from sandyard.runtime.model import EndReason

_INTERVAL_SEC = 0.25
_NEAR_LIMIT_SEC = 0.05
_STORAGE_SEC = 1.0
_MEMORY_FOLDERS = ("tmp", "dev/shm")


class Watchdog:
    """Watches the processes below this one; says which limit was exceeded."""

    def __init__(self, spec: Spec, files: Path) -> None:
        self._spec = spec
        self._limits = spec.limits
        self._files = files

    async def run(self) -> EndReason:
        """Return when a limit is exceeded."""
        storage = asyncio.ensure_future(self._storage())
        memory = asyncio.ensure_future(self._memory())
        try:
            await first_of(storage, memory)
            return storage.result() if storage.done() else memory.result()
        finally:
            storage.cancel()
            memory.cancel()

    async def _memory(self) -> EndReason:
        limit = self._limits.memory_bytes
        while True:
            pids = processes.descendants(os.getpid())
            folders = memory_folders(pids, self._spec)
            # The sum that is quick to make is never too small; only near the limit is it refined.
            bound = processes.resident_bytes(pids) + processes.used_bytes(folders)
            is_close = bound > limit or processes.reserved_bytes(pids) > 4 * limit
            if is_close:
                bound = processes.memory(pids, memory_folders=folders).held
            if bound > limit:
                return "out_of_memory"
            await asyncio.sleep(_NEAR_LIMIT_SEC if bound > limit // 3 else _INTERVAL_SEC)

    async def _storage(self) -> EndReason:
        limit = self._limits.storage_bytes
        while True:
            begun = time.monotonic()
            used = await asyncio.to_thread(self._stored_bytes)
            if used > limit:
                return "out_of_storage"
            # A large workspace takes long to measure: at most a tenth of the time goes there.
            await asyncio.sleep(max(_STORAGE_SEC, 10 * (time.monotonic() - begun)))

    def _stored_bytes(self) -> int:
        pids = processes.descendants(os.getpid())
        kept = workspace.used_bytes(self._files, give_up_above=self._limits.storage_bytes)
        return kept + workspace.unlinked_bytes(self._files, pids)


def memory_folders(pids: Sequence[int], spec: Spec) -> list[str]:
    """The in-memory folders of the sandbox, seen through its last process."""
    if spec.isolation == "none" or not pids:
        return []
    folders = [f"/proc/{pids[-1]}/root/{name}" for name in _MEMORY_FOLDERS]
    # A larger one is the machine's own: that process is not isolated yet.
    limit = spec.limits.memory_bytes
    return [folder for folder in folders if processes.capacity_bytes(folder) <= limit]
