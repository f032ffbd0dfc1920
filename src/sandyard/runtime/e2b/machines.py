"""`machine_ports.Machines` at E2B. Its state is on disk here and in the metadata there."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sandyard.kit.clock import Clock
from sandyard.kit.errors import UnavailableError
from sandyard.runtime import errors
from sandyard.runtime.e2b.control import E2bControl, Measurement
from sandyard.runtime.e2b.endings import (
    Connections,
    Endings,
    metadata_of,
    metadata_of_kind,
    run_id_of,
)
from sandyard.runtime.e2b.errors import E2bGoneError, E2bNotMeasuredError, E2bRefusedError
from sandyard.runtime.e2b.records import E2bRunFolder, MachineRecord, SnapshotRecords
from sandyard.runtime.machine_ports import Egress
from sandyard.runtime.model import (
    Ended,
    IsolationMode,
    Kind,
    Log,
    MachineSpec,
    MachineState,
    RunId,
    Sample,
    Snapshot,
    Starting,
    Stopping,
    Up,
)
from sandyard.runtime.network_model import NO_RULES, EgressReport, EgressRules, Network
from sandyard.runtime.records.run_folder import RunFolders
from sandyard.runtime.remote.machines import MachineAccess
from sandyard.runtime.remote.session import RemoteSession
from sandyard.runtime.secrets_model import MachineSecrets

_POLL_SEC = 0.05
_GONE = "E2B ended its machine before it could be used. Start again."


@dataclass(frozen=True, slots=True)
class E2bOptions:
    node: str
    """Identifies our machines among all those of the key."""
    template: str = "base"
    port: int = 8080
    """The value of PORT for a program."""


class E2bMachines:
    def __init__(
        self, folder: Path, control: E2bControl, options: E2bOptions, *, clock: Clock
    ) -> None:
        self._control = control
        self._options = options
        self._clock = clock
        self._folders = RunFolders(folder.absolute())
        self._snapshots = SnapshotRecords(folder.absolute() / "snapshots")
        self._connections = Connections(control)
        self._endings = Endings(
            control, self._connections, self._snapshots, node=options.node, clock=clock
        )

    async def check(self, isolation: IsolationMode | None = None) -> None:  # noqa: ARG002
        await self._control.check()

    async def create(self, run_id: RunId, spec: MachineSpec) -> Up:
        if spec.snapshot_id is not None:
            await self.require_snapshot(spec.snapshot_id)
        folder = self._folder_of(run_id)
        folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with folder.lock() as lock:
            if lock is None or folder.machine() is not None:
                raise errors.AttemptEndedError
            machine = await self._make(folder, spec)
        return Up(run_id, self._options.port, machine.created_at, machine.deadline_at)

    async def find(self, run_id: RunId) -> MachineState | None:
        return self._folder_of(run_id).state()

    async def refresh(self, run_id: RunId) -> MachineState | None:
        folder = self._folder_of(run_id)
        if isinstance(state := folder.state(), Ended | None):
            return state
        with folder.lock() as lock:
            return state if lock is None else await self._refresh(folder)

    async def run_ids(self, kind: Kind) -> Sequence[RunId]:
        await self._kill_unrecorded(kind)
        return self._folders.run_ids(kind)

    async def versions(self, kind: Kind) -> Mapping[RunId, object]:  # noqa: ARG002
        """What a program does is known inside alone."""
        return {}

    async def session(self, run_id: RunId) -> RemoteSession:
        return await self._connect(run_id)

    async def set_deadline(
        self,
        run_id: RunId,
        deadline_at: float,
        *,
        keeps_memory: bool | None = None,  # noqa: ARG002 - it stores files alone
    ) -> float:
        folder, sandbox_id = self._require_up(run_id)
        try:
            lifetime_sec = deadline_at - self._clock.now()
            await self._control.set_timeout(sandbox_id, lifetime_sec=lifetime_sec)
            deadline_at = (await self._control.get(sandbox_id)).end_at.timestamp()
        except E2bGoneError as error:
            raise errors.NotRunningError from error
        folder.move_deadline(deadline_at)
        return deadline_at

    async def stop(self, run_id: RunId, *, has_memory: bool = False) -> None:
        if has_memory:
            raise errors.MemoryNotKeptError
        folder = self._folder_of(run_id)
        if folder.machine() is not None:
            folder.request_end()

    async def forget(self, run_id: RunId) -> None:
        await asyncio.to_thread(self._folders.remove, run_id)

    async def sample(self, run_id: RunId) -> Sample:
        folder, sandbox_id = self._require_up(run_id)
        machine = await self._connect(run_id)
        since_at = folder.launched_at() or 0.0
        try:
            measured = await self._control.metrics(sandbox_id, since_at=since_at)
        except E2bGoneError as error:
            raise errors.NotRunningError from error
        if not measured:
            raise E2bNotMeasuredError
        usage = await machine.usage()
        return Sample(
            at=measured[-1].at,
            cpu_seconds=cpu_seconds(measured, since_at=since_at),
            memory_bytes=measured[-1].memory_bytes,
            storage_bytes=usage.workspace_bytes,
            processes=usage.processes,
        )

    async def workspace_bytes(self, run_id: RunId) -> int:
        return (await (await self._connect(run_id)).usage()).workspace_bytes

    async def pack(self, run_id: RunId, to: Path, *, has_memory: bool = False) -> bool:  # noqa: ARG002
        """E2B stores snapshots only at E2B."""
        if has_memory:
            raise errors.MemoryNotKeptError
        return False

    async def stop_program(self, run_id: RunId) -> None:
        await (await self._connect(run_id)).stop_program()

    async def entry_point(self, run_id: RunId) -> None:  # noqa: ARG002 - they have E2B's image
        return None

    async def read_log(self, run_id: RunId, begin: int | None) -> Log:
        folder = self._folder_of(run_id)
        while isinstance(folder.state(), Up | Stopping) and not folder.has_log():
            try:
                return await (await self._connect(run_id)).read_log(begin)
            except errors.NotRunningError:  # its end saves the log
                await self.refresh(run_id)
                await asyncio.sleep(_POLL_SEC)
            except UnavailableError:
                if isinstance(folder.state(), Up):
                    raise
                # Its end, which is recorded first, ended all processes inside, and so the reader.
        return await asyncio.to_thread(folder.saved_log, begin)

    @asynccontextmanager
    async def egress(self, run_id: RunId) -> AsyncIterator[Egress]:  # noqa: ARG002
        """E2B's machines reach the internet, and nothing of ours."""
        yield Egress({}, _no_refusal)

    async def set_network(
        self,
        run_id: RunId,
        network: Network,  # noqa: ARG002
        rules: EgressRules = NO_RULES,  # noqa: ARG002
    ) -> None:
        """E2B's machines always reach the internet."""
        self._require_up(run_id)

    async def set_secrets(self, run_id: RunId, secrets: MachineSecrets) -> None:  # noqa: ARG002
        raise errors.SecretsUnsupportedError

    async def egress_report(self, run_id: RunId) -> EgressReport:  # noqa: ARG002 - all are alike
        return EgressReport("internet")

    async def has_snapshot(self, snapshot_id: str) -> bool:
        return await self._control.has_snapshot(snapshot_id)

    async def require_snapshot(self, snapshot_id: str) -> None:
        if not await self.has_snapshot(snapshot_id):
            raise errors.SnapshotNotFoundError

    async def store_snapshot(self, snapshot_id: str, *, timeout_sec: float | None = None) -> None:
        """E2B keeps its snapshots."""

    async def list_snapshots(self) -> Sequence[Snapshot]:
        return self._snapshots.list_all()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._control.delete_snapshot(snapshot_id)
        self._snapshots.remove(snapshot_id)

    def _folder_of(self, run_id: RunId) -> E2bRunFolder:
        return E2bRunFolder(self._folders.path_of(run_id), run_id, port=self._options.port)

    async def _make(self, folder: E2bRunFolder, spec: MachineSpec) -> MachineRecord:
        now = self._clock.now()
        machine = MachineRecord(created_at=now, deadline_at=now + spec.lifetime_sec)
        await asyncio.to_thread(folder.write_machine, machine)
        sandbox = await self._make_sandbox(folder, spec)
        machine = replace(machine, sandbox_id=sandbox.machine_id)
        await asyncio.to_thread(folder.write_machine, machine)
        try:
            await self._connections.add(sandbox, folder.run_id).prepare()
        except errors.NotRunningError as error:
            raise errors.StartFailedError(_GONE) from error
        return machine

    async def _make_sandbox(self, folder: E2bRunFolder, spec: MachineSpec) -> MachineAccess:
        try:
            return await self._control.create(
                spec.snapshot_id or self._options.template,
                lifetime_sec=spec.lifetime_sec,
                metadata=metadata_of(folder.run_id, node=self._options.node),
                pauses=True,
            )
        except E2bRefusedError as error:
            folder.drop_machine()
            raise errors.StartFailedError(
                f"E2B refused to create a sandbox ({error.reason})."
            ) from error

    async def _refresh(self, folder: E2bRunFolder) -> MachineState | None:
        """Its state at E2B, under the lock; completes interrupted steps."""
        match state := folder.state():
            case Starting():  # its creator is gone
                return await self._endings.end(folder, "killed")
            case Stopping():
                return await self._endings.finish(folder)
            case Up() if folder.end_is_requested():
                return await self._endings.end(folder, "stopped")
            case Up():
                return await self._check_program(folder, state)
        return state

    async def _check_program(self, folder: E2bRunFolder, up: Up) -> MachineState:
        """An error inside is no end: E2B says whether it still runs."""
        sandbox_id = folder.sandbox_id() or ""
        try:
            program = await (await self._connections.to_running(sandbox_id, up.run_id)).program()
        except (UnavailableError, E2bGoneError, errors.NotRunningError):
            self._connections.drop(sandbox_id)
            if await self._control.state(sandbox_id) != "running":
                return await self._endings.end_paused_or_gone(folder, up)
            program = None
        if program is not None:
            folder.note_program(program)
        if program is not None and program.policy == "ends_machine" and program.is_over:
            return await self._endings.end(folder, "exited", code=program.exit_code)
        folder.write_heartbeat()
        return up

    def _require_up(self, run_id: RunId) -> tuple[E2bRunFolder, str]:
        """Its folder and E2B's id for it. Raises NotRunningError or RunNotFoundError."""
        folder = self._folder_of(run_id)
        state, sandbox_id = folder.state(), folder.sandbox_id()
        if state is None:
            raise errors.RunNotFoundError
        if not isinstance(state, Up) or sandbox_id is None or folder.end_is_requested():
            raise errors.NotRunningError
        return folder, sandbox_id

    async def _connect(self, run_id: RunId) -> RemoteSession:
        _, sandbox_id = self._require_up(run_id)
        try:
            return await self._connections.to_running(sandbox_id, run_id)
        except E2bGoneError as error:
            raise errors.NotRunningError from error

    async def _kill_unrecorded(self, kind: Kind) -> None:
        """Kill machines at E2B without a record here: a create whose answer came too late."""
        of_kind = metadata_of_kind(kind, node=self._options.node)
        for found in await self._control.list_by_metadata(of_kind):
            folder = self._folder_of(run_id_of(kind, found.metadata))
            is_expected = folder.sandbox_id() in (None, found.machine_id)
            if isinstance(folder.state(), Ended | None) or not is_expected:
                await self._control.kill(found.machine_id)


async def _no_refusal() -> str | None:
    return None


def cpu_seconds(measured: Sequence[Measurement], *, since_at: float) -> float:
    """CPU time, from the utilization that E2B sampled now and then."""
    total = 0.0
    for each in measured:
        total += max(0.0, each.at - since_at) * each.cpu_used_pct / 100 * each.cpu_count
        since_at = max(since_at, each.at)
    return total
