"""How a program at E2B ends: its log and its files are kept, then its sandbox is let go.

An end is written down before anything is done, so that whoever comes later finishes it.
"""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import replace

from sandyard.kit.errors import UnavailableError
from sandyard.platform.runtime.e2b.control import E2bControl
from sandyard.platform.runtime.e2b.errors import E2bGoneError, E2bTroubleError
from sandyard.platform.runtime.e2b.records import Record, SnapshotRecords
from sandyard.platform.runtime.errors import StartFailedError
from sandyard.platform.runtime.model import Ended, EndReason, Owner, Running, Snapshot

_CLOCKS_APART_SEC = 5
_NOT_A_NAME = re.compile(r"[^a-z0-9-]+")
_MESSAGES: dict[EndReason, str] = {
    "stopped": "It was stopped.",
    "timeout": "Its time was over.",
    "exited": "Its program ended by itself.",
    "killed": "E2B ended its sandbox; the end is when it was last seen.",
}
_BROKEN_OFF = "The start broke off: E2B was away, or this server. Start again."


class Endings:
    def __init__(self, control: E2bControl, snapshots: SnapshotRecords, *, node: str) -> None:
        self._control = control
        self._snapshots = snapshots
        self._node = node

    def metadata_of(self, owner: Owner) -> Mapping[str, str]:
        """What its sandbox carries at E2B."""
        return self.metadata_of_kind(owner.kind) | {"owner": owner.id, "attempt": owner.attempt}

    def metadata_of_kind(self, kind: str) -> dict[str, str]:
        """Other servers with the same key have sandboxes of their own."""
        return {"kind": kind, "node": self._node}

    async def end(
        self, record: Record, running: Running, reason: EndReason, *, code: int | None = None
    ) -> Ended:
        """End what runs now."""
        return await self._close(record, running, reason, ended_at=time.time(), code=code)

    async def end_as_over(self, record: Record, running: Running) -> Ended:
        """Record the end of what E2B has paused or lost: its time was over, or it was killed."""
        now = time.time()
        if now >= running.deadline_at - _CLOCKS_APART_SEC:
            ended_at = min(now, running.deadline_at)
            return await self._close(record, running, "timeout", ended_at=ended_at)
        seen_at = max(running.started_at, record.last_beat_at())
        return await self._close(record, running, "killed", ended_at=seen_at)

    async def give_up(self, record: Record, error: StartFailedError | None = None) -> Ended:
        """End a start that failed; without an error, one that nobody carries on any more."""
        error = error or StartFailedError(_BROKEN_OFF)
        if record.ended(final=False) is None:
            ended = Ended(
                record.owner,
                "not_started",
                ended_at=time.time(),
                error_code=error.code,
                message=error.message,
            )
            await asyncio.to_thread(record.write_ended, ended, final=False)
        return await self.finish(record)

    async def finish(self, record: Record) -> Ended:
        """Carry out the end that was written down, from wherever it broke off."""
        ended = record.ended(final=False)
        if ended is None:
            raise UnavailableError(reason=f"no end of {record.owner} was written down")
        if ended.started_at is not None and not (ended.snapshot or ended.snapshot_trouble):
            ended = await self._keep(record, ended)
            await asyncio.to_thread(record.write_ended, ended, final=False)
        await self._let_go(record)
        await asyncio.to_thread(record.write_ended, ended)
        return ended

    async def _close(
        self,
        record: Record,
        running: Running,
        reason: EndReason,
        *,
        ended_at: float,
        code: int | None = None,
    ) -> Ended:
        ended = Ended(
            running.owner,
            reason,
            ended_at=ended_at,
            started_at=running.started_at,
            exit_code=code,
            message=_MESSAGES[reason],
        )
        await asyncio.to_thread(record.write_ended, ended, final=False)
        return await self.finish(record)

    async def _keep(self, record: Record, ended: Ended) -> Ended:
        """The end with its snapshot, or with the reason why there is none."""
        try:
            return replace(ended, snapshot=await self._take_snapshot(record))
        except E2bGoneError as error:
            if await self._control.state(record.sandbox_id() or "") != "gone":
                raise E2bTroubleError(reason="it was paused meanwhile") from error
            return replace(ended, snapshot_trouble="E2B has it no more")
        except UnavailableError as error:
            if time.time() - ended.ended_at < self._control.timeouts.keep_trying_sec:
                raise
            return replace(ended, snapshot_trouble=error.message)

    async def _take_snapshot(self, record: Record) -> Snapshot:
        """Only a sandbox that runs can be kept, so a paused one is woken for it."""
        sandbox_id = record.sandbox_id() or ""
        inside = await self._control.connect(
            sandbox_id, lives_sec=2 * self._control.timeouts.snapshot_sec
        )
        await inside.end_program(record.owner)  # a snapshot keeps processes too
        await asyncio.to_thread(record.save_log, await inside.read_log())
        size = (await inside.use()).workspace_bytes
        name = _NOT_A_NAME.sub("-", str(record.owner).lower())
        snapshot_id = await self._control.take_snapshot(sandbox_id, name=name)
        snapshot = Snapshot(snapshot_id, size, time.time())
        self._snapshots.add(snapshot)
        return snapshot

    async def _let_go(self, record: Record) -> None:
        """Kill its sandbox; after a create whose answer was lost, that one too."""
        found = {record.sandbox_id()}
        if None in found:
            listed = await self._control.listed(self.metadata_of(record.owner))
            found = {each.sandbox_id for each in listed}
        for sandbox_id in found:
            if sandbox_id is not None:
                await self._control.kill(sandbox_id)
