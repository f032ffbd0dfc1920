"""A runtime whose machines are folders of this machine, without programs of their own."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sandyard.runtime.errors import (
    IsolationMissingError,
    MemoryNotKeptError,
    NotRunningError,
    RunNotFoundError,
)
from sandyard.runtime.guest.program import ProgramState, ProgramStatus
from sandyard.runtime.model import (
    Ended,
    FileChanges,
    IsolationMode,
    Kind,
    Limits,
    Program,
    RunId,
    Running,
    RunState,
    Sample,
    Snapshot,
    stronger,
)
from sandyard.runtime.network_model import NO_RULES, EgressReport, EgressRules, Network
from sandyard.runtime.secrets_model import MachineSecrets
from sandyard.runtime.sessions.model import WORKSPACE
from sandyard.runtime.store.archives import ArchiveFolder
from tests.fakes.session import FakeMachine, FakeSession


class FakeRuntime:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._archives = ArchiveFolder(folder / "archives")
        self._snapshots = ArchiveFolder(folder / "snapshots")
        self._runs: dict[RunId, RunState] = {}
        self._machines: dict[RunId, FakeMachine] = {}
        self.programs: dict[str, Program] = {}
        """What each sandbox was started with last."""
        self.networks: dict[str, Network] = {}
        self.secrets: dict[str, MachineSecrets] = {}
        self.may_start = asyncio.Event()
        """Starts wait for it."""
        self.isolation: IsolationMode = "bubblewrap"
        self.missing: set[IsolationMode] = set()
        """Isolations that this host does not have."""
        self.may_start.set()

    async def check(self, isolation: IsolationMode | None = None) -> None:
        if isolation in self.missing:
            raise IsolationMissingError

    async def start(self, run_id: RunId, program: Program, limits: Limits) -> Running:
        await self.may_start.wait()
        now = time.time()
        state = _program(program, "running" if program.is_launched else "stopped", now)
        isolation = stronger(self.isolation, program.isolation)
        until = now + limits.max_running_sec
        running = Running(run_id, 8080, now, until, state, isolation=isolation)
        self._machines[run_id] = FakeMachine(self._folder / str(run_id))
        files = (await self._machines[run_id].connect()).files
        if program.snapshot_id is not None:
            await files.write_tar(WORKSPACE, self._snapshots.read(program.snapshot_id))
        elif program.archive_id is not None:
            await files.write_tar(WORKSPACE, self._archives.read(program.archive_id))
        self._runs[run_id] = running
        self.programs[run_id.id] = program
        self.networks[run_id.id] = program.network
        return running

    async def start_program(self, run_id: RunId, program: Program) -> Running:
        self.programs[run_id.id] = program
        return self.set_program(run_id, _program(program, "running", time.time()))

    async def stop_program(self, run_id: RunId) -> Running:
        last = self.programs[run_id.id]
        return self.set_program(run_id, _program(last, "stopped", time.time()))

    def set_program(self, run_id: RunId, state: ProgramState | None) -> Running:
        running = replace(self._running(run_id), program=state)
        self._runs[run_id] = running
        return running

    async def stop(self, run_id: RunId, *, has_memory: bool = False) -> Ended:
        state = self._get(run_id)
        if isinstance(state, Ended):
            return state
        if has_memory:
            raise MemoryNotKeptError
        files = (await self._machines[run_id].connect()).files
        snapshot = await self._snapshots.write(str(run_id), files.read_tar(WORKSPACE))
        await self._machines[run_id].end()
        now = time.time()
        ended = Ended(run_id, "stopped", now, started_at=now, snapshot=snapshot)
        self._runs[run_id] = ended
        return ended

    async def find(self, run_id: RunId) -> RunState | None:
        return self._runs.get(run_id)

    async def refresh(self, run_id: RunId) -> RunState | None:
        return await self.find(run_id)

    async def run_ids(self, kind: Kind) -> Sequence[RunId]:
        return [run_id for run_id in self._runs if run_id.kind == kind]

    async def versions(self, kind: Kind) -> Mapping[RunId, object]:
        running = {run: state for run, state in self._runs.items() if run.kind == kind}
        return {run: state for run, state in running.items() if isinstance(state, Running)}

    async def list_runs(self, kind: Kind) -> Sequence[RunState]:
        return [state for run_id, state in self._runs.items() if run_id.kind == kind]

    async def forget(self, run_id: RunId) -> None:
        self._runs.pop(run_id, None)

    async def extend(
        self,
        run_id: RunId,
        *,
        deadline_at: float,
        keeps_memory: bool | None = None,  # noqa: ARG002 - it stores files alone
    ) -> Running:
        extended = replace(self._running(run_id), deadline_at=deadline_at)
        self._runs[run_id] = extended
        return extended

    async def sample(self, run_id: RunId) -> Sample:
        self._running(run_id)
        return Sample(time.time(), 0, 0, 0, 0)

    async def tail_logs(self, run_id: RunId, *, lines: int) -> Sequence[str]:  # noqa: ARG002
        self._get(run_id)
        return []

    async def follow_logs(self, run_id: RunId, *, lines: int = 0) -> AsyncIterator[str]:  # noqa: ARG002
        self._get(run_id)
        for line in list[str]():
            yield line

    async def write_files(self, run_id: RunId, changes: FileChanges) -> None:  # noqa: ARG002
        self._running(run_id)

    async def set_network(
        self,
        run_id: RunId,
        network: Network,
        rules: EgressRules = NO_RULES,  # noqa: ARG002
    ) -> None:
        self._running(run_id)
        self.networks[run_id.id] = network

    async def set_secrets(self, run_id: RunId, secrets: MachineSecrets) -> None:
        self._running(run_id)
        self.secrets[run_id.id] = secrets

    async def egress_report(self, run_id: RunId) -> EgressReport:
        self._get(run_id)
        return EgressReport(self.networks.get(run_id.id, "none"))

    async def session(self, run_id: RunId) -> FakeSession:
        self._running(run_id)
        return await self._machines[run_id].connect()

    async def save_archive(
        self, run_id: RunId, archive_id: str, *, has_memory: bool = False
    ) -> Snapshot:
        if has_memory:
            raise MemoryNotKeptError
        files = (await self.session(run_id)).files
        return await self._archives.write(archive_id, files.read_tar(WORKSPACE))

    async def list_archives(self) -> Sequence[Snapshot]:
        return await self._archives.list_all()

    async def delete_archive(self, archive_id: str) -> None:
        await self._archives.delete(archive_id)

    async def has_snapshot(self, snapshot_id: str) -> bool:
        return await self._snapshots.find(snapshot_id) is not None

    async def list_snapshots(self) -> Sequence[Snapshot]:
        return await self._snapshots.list_all()

    async def store_snapshot(
        self, snapshot_id: str, *, timeout_sec: float | None = None
    ) -> None: ...

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._snapshots.delete(snapshot_id)

    async def end_all(self) -> None:
        for machine in self._machines.values():
            await machine.end()

    def _get(self, run_id: RunId) -> RunState:
        if run_id not in self._runs:
            raise RunNotFoundError
        return self._runs[run_id]

    def _running(self, run_id: RunId) -> Running:
        state = self._get(run_id)
        if not isinstance(state, Running):
            raise NotRunningError
        return state


def _program(program: Program, status: ProgramStatus, at: float) -> ProgramState | None:
    return None if program.source is None else ProgramState(status, at, program.policy)
