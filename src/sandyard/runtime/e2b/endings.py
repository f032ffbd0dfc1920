"""How a program at E2B ends: its log and a snapshot are kept, then its sandbox is killed.

An end is recorded before anything is done, so that whoever comes later completes it.
"""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import replace

from sandyard.kit.errors import UnavailableError
from sandyard.runtime.e2b.control import E2bControl
from sandyard.runtime.e2b.errors import E2bGoneError, E2bUnavailableError
from sandyard.runtime.e2b.records import E2bRunFolder, SnapshotRecords
from sandyard.runtime.errors import StartFailedError
from sandyard.runtime.lifecycle import end_message
from sandyard.runtime.model import Ended, EndReason, RunId, Running, Snapshot

_CLOCK_SKEW_SEC = 5
_NOT_A_NAME = re.compile(r"[^a-z0-9-]+")
_INTERRUPTED = "The start was interrupted: E2B or this server was unavailable. Start again."


class Endings:
    def __init__(self, control: E2bControl, snapshots: SnapshotRecords, *, node: str) -> None:
        self._control = control
        self._snapshots = snapshots
        self._node = node

    def metadata_of(self, run_id: RunId) -> Mapping[str, str]:
        """The metadata of its sandbox at E2B."""
        return self.metadata_of_kind(run_id.kind) | {"owner": run_id.id, "attempt": run_id.attempt}

    def metadata_of_kind(self, kind: str) -> dict[str, str]:
        """Other servers with the same key have sandboxes of their own."""
        return {"kind": kind, "node": self._node}

    async def end(
        self, folder: E2bRunFolder, running: Running, reason: EndReason, *, code: int | None = None
    ) -> Ended:
        """End what runs now."""
        return await self._close(folder, running, reason, ended_at=time.time(), code=code)

    async def end_paused_or_gone(self, folder: E2bRunFolder, running: Running) -> Ended:
        """Record the end of what E2B has paused or lost: by its deadline, or killed."""
        now = time.time()
        if now >= running.deadline_at - _CLOCK_SKEW_SEC:
            ended_at = min(now, running.deadline_at)
            return await self._close(folder, running, "timeout", ended_at=ended_at)
        seen_at = max(running.started_at, folder.last_heartbeat_at())
        return await self._close(folder, running, "killed", ended_at=seen_at)

    async def fail_start(
        self, folder: E2bRunFolder, error: StartFailedError | None = None
    ) -> Ended:
        """End a start that failed; without an error, one that was interrupted."""
        error = error or StartFailedError(_INTERRUPTED)
        if folder.ended(final=False) is None:
            ended = Ended(
                folder.run_id,
                "not_started",
                ended_at=time.time(),
                started_at=folder.launched_at(),
                error_code=error.code,
                message=error.message,
            )
            await asyncio.to_thread(folder.write_ended, ended, final=False)
        return await self.finish(folder)

    async def finish(self, folder: E2bRunFolder) -> Ended:
        """Complete the end that was recorded, from wherever it was interrupted."""
        ended = folder.ended(final=False)
        if ended is None:
            raise UnavailableError(reason=f"no end of {folder.run_id} was written down")
        if ended.has_listened and not (ended.snapshot or ended.snapshot_error):
            ended = await self._with_snapshot(folder, ended)
            await asyncio.to_thread(folder.write_ended, ended, final=False)
        await self._kill_sandbox(folder)
        await asyncio.to_thread(folder.write_ended, ended)
        return ended

    async def _close(
        self,
        folder: E2bRunFolder,
        running: Running,
        reason: EndReason,
        *,
        ended_at: float,
        code: int | None = None,
    ) -> Ended:
        ended = Ended(
            running.run_id,
            reason,
            ended_at=ended_at,
            started_at=running.started_at,
            exit_code=code,
            message=end_message(reason, code),
        )
        await asyncio.to_thread(folder.write_ended, ended, final=False)
        return await self.finish(folder)

    async def _with_snapshot(self, folder: E2bRunFolder, ended: Ended) -> Ended:
        """The end with its snapshot, or with the reason why there is none."""
        try:
            return replace(ended, snapshot=await self._take_snapshot(folder))
        except E2bGoneError as error:
            if await self._control.state(folder.sandbox_id() or "") != "gone":
                raise E2bUnavailableError(reason="it was paused meanwhile") from error
            return replace(ended, snapshot_error="E2B has it no more")
        except UnavailableError as error:
            if time.time() - ended.ended_at < self._control.timeouts.snapshot_retry_sec:
                raise
            return replace(ended, snapshot_error=error.message)

    async def _take_snapshot(self, folder: E2bRunFolder) -> Snapshot:
        """Only a sandbox that runs can be kept, so a paused one is resumed for it."""
        sandbox_id = folder.sandbox_id() or ""
        session = await self._control.connect(
            sandbox_id, lifetime_sec=2 * self._control.timeouts.snapshot_sec
        )
        await session.end_program(folder.run_id)  # a snapshot keeps processes too
        await asyncio.to_thread(folder.save_log, await session.read_log())
        size = (await session.usage()).workspace_bytes
        name = _NOT_A_NAME.sub("-", str(folder.run_id).lower())
        snapshot_id = await self._control.take_snapshot(sandbox_id, name=name)
        snapshot = Snapshot(snapshot_id, size, time.time())
        self._snapshots.add(snapshot)
        return snapshot

    async def _kill_sandbox(self, folder: E2bRunFolder) -> None:
        """Kill its sandbox; after a create whose answer was lost, that one too."""
        found = {folder.sandbox_id()}
        if None in found:
            listed = await self._control.list_by_metadata(self.metadata_of(folder.run_id))
            found = {each.sandbox_id for each in listed}
        for sandbox_id in found:
            if sandbox_id is not None:
                await self._control.kill(sandbox_id)
