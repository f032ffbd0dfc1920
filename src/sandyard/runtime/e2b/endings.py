"""How a machine at E2B ends: its log and a snapshot are stored, then it is killed.

An end is recorded before anything is done, so that a later process can complete it.
"""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace

from sandyard.kit.clock import Clock
from sandyard.kit.errors import UnavailableError
from sandyard.runtime.e2b.control import E2bControl
from sandyard.runtime.e2b.errors import E2bGoneError, E2bUnavailableError
from sandyard.runtime.e2b.records import E2bRunFolder, SnapshotRecords
from sandyard.runtime.errors import NotRunningError
from sandyard.runtime.model import Ended, EndReason, Kind, RunId, Snapshot, Up
from sandyard.runtime.programs.lifecycle import end_message
from sandyard.runtime.remote.connection import Connection
from sandyard.runtime.remote.guest import GuestProcess
from sandyard.runtime.remote.machines import MachineAccess
from sandyard.runtime.remote.session import RemoteSession

_CLOCK_SKEW_SEC = 5
_NOT_A_NAME = re.compile(r"[^a-z0-9-]+")


class Connections:
    """Connects to each machine once, and again when the connection was lost."""

    def __init__(self, control: E2bControl) -> None:
        self._control = control
        self._sessions: dict[str, RemoteSession] = {}

    async def to_running(self, sandbox_id: str, run_id: RunId) -> RemoteSession:
        """Does not resume a paused machine. Raises NotRunningError."""
        if sandbox_id not in self._sessions:
            if await self._control.state(sandbox_id) != "running":
                raise NotRunningError
            return self.add(await self._control.connect(sandbox_id), run_id)
        return self._sessions[sandbox_id]

    async def resumed(
        self, sandbox_id: str, run_id: RunId, *, lifetime_sec: float
    ) -> RemoteSession:
        """A connection to the machine, which lives at least this long."""
        sandbox = await self._control.connect(sandbox_id, lifetime_sec=lifetime_sec)
        return self.add(sandbox, run_id)

    def add(self, access: MachineAccess, run_id: RunId) -> RemoteSession:
        sandbox_id = access.machine_id

        async def is_running() -> bool:
            return await self._control.state(sandbox_id) == "running"

        envd, timeout_sec = self._control.envd(access), self._control.timeouts.command_sec
        connection = Connection(
            envd,
            GuestProcess(envd, str(run_id), timeout_sec),
            timeout_sec=timeout_sec,
            translate=self._control.translate,
            is_running=is_running,
        )
        session = RemoteSession(connection, access.host, proxy_url=self._control.sandbox_url)
        self._sessions[sandbox_id] = session
        return session

    def drop(self, sandbox_id: str) -> None:
        self._sessions.pop(sandbox_id, None)


def metadata_of(run_id: RunId, *, node: str) -> dict[str, str]:
    return metadata_of_kind(run_id.kind, node=node) | {"id": run_id.id, "attempt": run_id.attempt}


def metadata_of_kind(kind: Kind, *, node: str) -> dict[str, str]:
    """Other servers with the same key have their own machines."""
    return {"kind": kind, "node": node}


def run_id_of(kind: Kind, metadata: Mapping[str, str]) -> RunId:
    return RunId(kind, metadata["id"], metadata["attempt"])


@dataclass(slots=True, eq=False)
class Endings:
    control: E2bControl
    connections: Connections
    snapshots: SnapshotRecords
    _: KW_ONLY
    node: str
    clock: Clock

    async def end(
        self, folder: E2bRunFolder, reason: EndReason, *, code: int | None = None
    ) -> Ended:
        return await self._close(folder, reason, ended_at=self.clock.now(), code=code)

    async def end_paused_or_gone(self, folder: E2bRunFolder, up: Up) -> Ended:
        """Record the end of a machine that E2B has paused or lost: by its deadline, or killed."""
        now = self.clock.now()
        if now >= up.deadline_at - _CLOCK_SKEW_SEC:
            return await self._close(folder, "timeout", ended_at=min(now, up.deadline_at))
        seen_at = max(up.created_at, folder.last_heartbeat_at())
        return await self._close(folder, "killed", ended_at=seen_at)

    async def finish(self, folder: E2bRunFolder) -> Ended:
        """Complete the recorded end, from wherever it was interrupted."""
        ended = folder.ended(final=False)
        if ended is None:
            raise UnavailableError(reason=f"no end of {folder.run_id} was written down")
        if folder.running() is None:
            await self._save_log(folder)
        elif not (ended.snapshot or ended.snapshot_error):
            ended = await self._with_snapshot(folder, ended)
            await asyncio.to_thread(folder.write_ended, ended, final=False)
        await self._kill(folder)
        await asyncio.to_thread(folder.write_ended, ended)
        return ended

    async def _close(
        self,
        folder: E2bRunFolder,
        reason: EndReason,
        *,
        ended_at: float,
        code: int | None = None,
    ) -> Ended:
        ended = Ended(
            folder.run_id,
            reason,
            ended_at=ended_at,
            exit_code=code,
            message=end_message(reason, code),
        )
        await asyncio.to_thread(folder.write_ended, ended, final=False)
        return await self.finish(folder)

    async def _with_snapshot(self, folder: E2bRunFolder, ended: Ended) -> Ended:
        """The end with its snapshot, or with the reason why there is none."""
        try:
            return replace(ended, snapshot=await self._take_snapshot(folder))
        except (E2bGoneError, NotRunningError) as error:
            if await self.control.state(folder.sandbox_id() or "") != "gone":
                raise E2bUnavailableError(reason="it was paused meanwhile") from error
            return replace(ended, snapshot_error="E2B has it no more")
        except UnavailableError as error:
            if self.clock.now() - ended.ended_at < self.control.timeouts.snapshot_retry_sec:
                raise
            return replace(ended, snapshot_error=error.message)

    async def _take_snapshot(self, folder: E2bRunFolder) -> Snapshot:
        """Only a running machine can be snapshotted, so a paused one is resumed first."""
        sandbox_id = folder.sandbox_id() or ""
        lifetime_sec = 2 * self.control.timeouts.snapshot_sec
        machine = await self.connections.resumed(
            sandbox_id, folder.run_id, lifetime_sec=lifetime_sec
        )
        await machine.end_processes()  # a snapshot includes processes
        await asyncio.to_thread(folder.save_log, await machine.read_log())
        size = (await machine.usage()).workspace_bytes
        name = _NOT_A_NAME.sub("-", str(folder.run_id).lower())
        snapshot_id = await self.control.take_snapshot(sandbox_id, name=name)
        snapshot = Snapshot(snapshot_id, size, self.clock.now())
        self.snapshots.add(snapshot)
        return snapshot

    async def _save_log(self, folder: E2bRunFolder) -> None:
        """Save the output of a program that never listened. A machine that does not respond, or is
        gone, is ended without it."""
        sandbox_id = folder.sandbox_id()
        if sandbox_id is None or folder.launched_at() is None:
            return
        with suppress(UnavailableError, E2bGoneError, NotRunningError):
            machine = await self.connections.to_running(sandbox_id, folder.run_id)
            await asyncio.to_thread(folder.save_log, await machine.read_log())

    async def _kill(self, folder: E2bRunFolder) -> None:
        """Kill the machine; after a create whose answer was lost, the one it made."""
        sandbox_id = folder.sandbox_id()
        if sandbox_id is not None:
            self.connections.drop(sandbox_id)
            await self.control.kill(sandbox_id)
            return
        run_id = folder.run_id
        of_kind = metadata_of_kind(run_id.kind, node=self.node)
        for found in await self.control.list_by_metadata(of_kind):
            if run_id_of(run_id.kind, found.metadata) == run_id:
                await self.control.kill(found.machine_id)
