"""Simulated machines: hosts whose machines outlive their servers, and one server's view of them."""

import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import orjson

from sandyard.runtime.errors import (
    AttemptEndedError,
    CloneFailedError,
    NotRunningError,
    RunNotFoundError,
    RuntimeUnavailableError,
    SnapshotNotFoundError,
    StillRunningError,
    start_failure,
)
from sandyard.runtime.model import (
    Ended,
    EndReason,
    FileChanges,
    IsolationMode,
    Kind,
    Limits,
    Program,
    RunId,
    Running,
    RunState,
    Snapshot,
    Starting,
)
from sandyard.runtime.sessions.model import Command
from sandyard.runtime.sessions.model import Process as GuestProcess
from sandyard.runtime.store.errors import StoreUnavailableError, StoringError
from tests.simulation.loop import Process
from tests.simulation.network import Network

T = TypeVar("T")

_POLL_SEC = 0.05
_INSTALL_SEC = 0.6
_ENDS_BY_ITSELF: Sequence[EndReason] = ("exited", "out_of_memory", "killed")


@dataclass(slots=True)
class Life:
    """A machine as it really was."""

    run_id: RunId
    host: str
    started_at: float
    ended_at: float | None = None

    def is_running(self, at: float) -> bool:
        return self.started_at <= at and (self.ended_at is None or at < self.ended_at)


@dataclass(slots=True)
class FileStore:
    """The store of files, which all hosts share."""

    snapshots: set[str] = field(default_factory=set)
    is_away: bool = False


@dataclass(slots=True)
class _Machine:
    state: RunState
    starter: Process
    ready_at: float
    fails: bool
    limits: Limits
    ends_at: float | None = None
    life: Life | None = None


@dataclass(slots=True)
class Host:
    """The machines of one node, which go on whatever becomes of its server."""

    name: str
    now: Callable[[], float]
    rng: random.Random
    store: FileStore | None
    goes_on: bool
    """Whether a start goes on when the server that asked for it dies, as at E2B."""
    machines: dict[RunId, _Machine] = field(default_factory=dict)
    lives: list[Life] = field(default_factory=list)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    archives: dict[str, Snapshot] = field(default_factory=dict)

    def begin(self, run_id: RunId, program: Program, limits: Limits, starter: Process) -> None:
        is_packed = program.snapshot_id is None or self.has_snapshot(program.snapshot_id)
        if not is_packed or program.archive_id not in (None, *self.archives):
            raise SnapshotNotFoundError
        state = self.look(run_id)
        if isinstance(state, Ended):
            raise AttemptEndedError
        if state is None:
            rng = self.rng
            takes = 20.0 if rng.random() < 0.03 else rng.uniform(0.05, 1.5)
            begun = Starting(run_id, self.now())
            fails = rng.random() < 0.06
            self.machines[run_id] = _Machine(begun, starter, self.now() + takes, fails, limits)

    def look(self, run_id: RunId) -> RunState | None:
        """What has happened to it by now."""
        machine = self.machines.get(run_id)
        if machine is None:
            return None
        if isinstance(machine.state, Starting):
            self._go_on_starting(machine, machine.state)
        if isinstance(machine.state, Running):
            self._go_on_running(machine, machine.state)
        return machine.state

    def _go_on_starting(self, machine: _Machine, state: Starting) -> None:
        now, run_id = self.now(), state.run_id
        if machine.starter.is_dead and not self.goes_on:
            code = "SUPERVISOR_LOST"
            machine.state = Ended(run_id, "not_started", now, error_code=code, message="lost")
        elif now < machine.ready_at:
            return
        elif machine.fails:
            code = CloneFailedError.code
            machine.state = Ended(
                run_id, "not_started", machine.ready_at, error_code=code, message="no repository"
            )
        else:
            began = machine.ready_at
            until = began + machine.limits.max_running_sec
            machine.state = Running(run_id, 8080, began, until, isolation="bubblewrap")
            if self.rng.random() < 0.3:
                machine.ends_at = began + self.rng.expovariate(1 / 30)
            machine.life = Life(run_id, self.name, began)
            self.lives.append(machine.life)

    def _go_on_running(self, machine: _Machine, state: Running) -> None:
        ends_at = machine.ends_at
        if ends_at is not None and ends_at < state.deadline_at:
            if ends_at <= self.now():
                self._end(machine, state, self.rng.choice(_ENDS_BY_ITSELF), ends_at)
        elif state.deadline_at <= self.now():
            self._end(machine, state, "timeout", state.deadline_at)

    def _end(self, machine: _Machine, state: Running, reason: EndReason, at: float) -> None:
        at = max(at, state.started_at)
        snapshot = error = None
        if self.rng.random() < 0.95:
            snapshot = Snapshot(str(state.run_id), self.rng.randrange(10**7, 10**9), at)
            self.snapshots[snapshot.id] = snapshot
        else:
            error = "it could not be packed"
        machine.state = Ended(
            state.run_id, reason, at, state.started_at, snapshot=snapshot, snapshot_error=error
        )
        assert machine.life is not None
        machine.life.ended_at = at

    def stop(self, run_id: RunId) -> Ended:
        state = self.look(run_id)
        if state is None:
            raise RunNotFoundError
        machine = self.machines[run_id]
        if isinstance(state, Starting):
            code = "STOPPED_WHILE_STARTING"
            machine.state = Ended(
                run_id, "not_started", self.now(), error_code=code, message="stopped"
            )
        elif isinstance(state, Running):
            self._end(machine, state, "stopped", self.now())
        assert isinstance(machine.state, Ended)
        return machine.state

    def extend(self, run_id: RunId, deadline_at: float) -> Running:
        state = self.running(run_id)
        moved = Running(run_id, state.port, state.started_at, deadline_at, isolation="bubblewrap")
        self.machines[run_id].state = moved
        return moved

    def running(self, run_id: RunId) -> Running:
        state = self.look(run_id)
        if state is None:
            raise RunNotFoundError
        if not isinstance(state, Running):
            raise NotRunningError
        return state

    def forget(self, run_id: RunId) -> None:
        state = self.look(run_id)
        if state is not None and not isinstance(state, Ended):
            raise StillRunningError
        self.machines.pop(run_id, None)

    def run_ids(self, kind: Kind) -> list[RunId]:
        return [each for each in self.machines if each.kind == kind]

    def has_snapshot(self, snapshot_id: str) -> bool:
        is_stored = self.store is not None and snapshot_id in self.store.snapshots
        return is_stored or snapshot_id in self.snapshots

    def keep_snapshot(self, snapshot_id: str, timeout_sec: float | None) -> None:
        if self.store is None:
            return
        if self.store.is_away:
            raise StoreUnavailableError("it is away")
        if timeout_sec is not None and self.rng.random() < 0.2:
            raise StoringError("it takes longer")
        self.store.snapshots.add(snapshot_id)

    def save_archive(self, run_id: RunId, archive_id: str) -> Snapshot:
        self.running(run_id)
        self.archives[archive_id] = Snapshot(archive_id, 10**7, self.now())
        return self.archives[archive_id]

    def delete_snapshot(self, snapshot_id: str) -> None:
        self.snapshots.pop(snapshot_id, None)
        if self.store is not None:
            self.store.snapshots.discard(snapshot_id)


class _Session:
    """Inside a machine whose launcher installs packages for a moment; its commands do nothing."""

    def __init__(self, host: Host, run_id: RunId) -> None:
        self.processes = self.files = self
        self._host = host
        self._run_id = run_id

    async def list(self) -> Sequence[GuestProcess]:
        return []

    async def run(self, command: Command) -> AsyncIterator[bytes]:
        yield " ".join(command.arguments).encode()

    async def read(self, path: str, *, limit: int) -> AsyncIterator[bytes]:
        del path, limit
        is_installing = (
            self._host.now() < self._host.running(self._run_id).started_at + _INSTALL_SEC
        )
        phase = "installing" if is_installing else "running"
        yield orjson.dumps({"phase": phase, "kind": "vite", "exit_code": None, "lines": []})


class SimulatedRuntime:
    """One server's view of its host; what it does not have is not asked for."""

    def __init__(self, host: Host, network: Network, process: Process) -> None:
        self._host = host
        self._network = network
        self._process = process

    async def check(self, isolation: IsolationMode | None = None) -> None:
        await self._call(lambda: isolation)

    async def start(self, run_id: RunId, program: Program, limits: Limits) -> Running:
        host, process = self._host, self._process
        await self._call(lambda: host.begin(run_id, program, limits, process))
        while isinstance(state := host.look(run_id), Starting):
            await self._network.wait(process, _POLL_SEC)
        state = await self._call(lambda: host.look(run_id))
        if isinstance(state, Running):
            return state
        if isinstance(state, Ended) and not state.has_run:
            raise start_failure(state.error_code, state.message)
        raise AttemptEndedError

    async def stop(self, run_id: RunId, *, has_memory: bool = False) -> Ended:
        del has_memory  # its processes are not kept here
        return await self._call(lambda: self._host.stop(run_id), may_double=True)

    async def find(self, run_id: RunId) -> RunState | None:
        return await self._call(lambda: self._host.look(run_id))

    async def refresh(self, run_id: RunId) -> RunState | None:
        return await self._call(lambda: self._host.look(run_id))

    async def run_ids(self, kind: Kind) -> Sequence[RunId]:
        return await self._call(lambda: self._host.run_ids(kind))

    async def versions(self, kind: Kind) -> Mapping[RunId, object]:
        def look() -> Mapping[RunId, object]:
            states = {each: self._host.look(each) for each in self._host.run_ids(kind)}
            return {each: state for each, state in states.items() if isinstance(state, Running)}

        return await self._call(look)

    async def list_runs(self, kind: Kind) -> Sequence[RunState]:
        return await self._call(
            lambda: [
                state
                for each in self._host.run_ids(kind)
                if (state := self._host.look(each)) is not None
            ]
        )

    async def forget(self, run_id: RunId) -> None:
        await self._call(lambda: self._host.forget(run_id), may_double=True)

    async def extend(
        self, run_id: RunId, *, deadline_at: float, keeps_memory: bool | None = None
    ) -> Running:
        del keeps_memory
        return await self._call(lambda: self._host.extend(run_id, deadline_at), may_double=True)

    async def write_files(self, run_id: RunId, changes: FileChanges) -> None:
        del changes
        await self._call(lambda: self._host.running(run_id))

    async def tail_logs(self, run_id: RunId, *, lines: int) -> Sequence[str]:
        return await self._call(lambda: [str(run_id)][:lines])

    async def session(self, run_id: RunId) -> _Session:
        await self._call(lambda: self._host.running(run_id))
        return _Session(self._host, run_id)

    async def start_program(self, run_id: RunId, program: Program) -> Running:
        del program
        return await self._call(lambda: self._host.running(run_id))

    async def save_archive(self, run_id: RunId, archive_id: str) -> Snapshot:
        return await self._call(lambda: self._host.save_archive(run_id, archive_id))

    async def list_archives(self) -> Sequence[Snapshot]:
        return []

    async def has_snapshot(self, snapshot_id: str) -> bool:
        return await self._call(lambda: self._host.has_snapshot(snapshot_id))

    async def store_snapshot(self, snapshot_id: str, *, timeout_sec: float | None = None) -> None:
        await self._call(lambda: self._host.keep_snapshot(snapshot_id, timeout_sec))

    async def list_snapshots(self) -> Sequence[Snapshot]:
        return await self._call(lambda: list(self._host.snapshots.values()))

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._call(lambda: self._host.delete_snapshot(snapshot_id), may_double=True)

    async def _call(self, work: Callable[[], T], *, may_double: bool = False) -> T:
        return await self._network.call(
            self._process, work, lost=_unavailable, may_double=may_double
        )


def _unavailable(reason: str) -> RuntimeUnavailableError:
    return RuntimeUnavailableError(reason=reason)
