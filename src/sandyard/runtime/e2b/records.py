"""The records of one machine at E2B, and of the snapshots that were taken."""

import json
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path

from sandyard.runtime.guest.program import ProgramState
from sandyard.runtime.model import Log, MachineState, RunId, Snapshot, Starting, Stopping, Up
from sandyard.runtime.records.run_folder import RunFolder, write_record

_MACHINE = "machine"
_LOG = "log"
_END = "end"
_INSIDE = "program_inside"


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """A machine that is being made, or exists: then `sandbox_id` is E2B's id of it."""

    created_at: float
    deadline_at: float
    sandbox_id: str | None = None


class E2bRunFolder(RunFolder):
    """The records of one run and its machine, and its saved log."""

    def __init__(self, path: Path, run_id: RunId, *, port: int) -> None:
        super().__init__(path)
        self.run_id = run_id
        self._port = port

    def write_machine(self, machine: MachineRecord) -> None:
        self.write(_MACHINE, asdict(machine))

    def machine(self) -> MachineRecord | None:
        return self.read(_MACHINE, lambda found: MachineRecord(**found))

    def drop_machine(self) -> None:
        (self.path / f"{_MACHINE}.json").unlink()

    def state(self) -> MachineState | None:
        """Its state when a record was last written."""
        machine = self.machine()
        if machine is None:
            return None
        if (ended := self.ended()) is not None:
            return ended
        if (ending := self.ended(final=False)) is not None:
            return Stopping(self.run_id, self._written_at("ending.json"), ending.message)
        if machine.sandbox_id is None:
            return Starting(self.run_id, machine.created_at)
        return Up(self.run_id, self._port, machine.created_at, machine.deadline_at)

    def sandbox_id(self) -> str | None:
        machine = self.machine()
        return None if machine is None else machine.sandbox_id

    def move_deadline(self, deadline_at: float) -> None:
        if (machine := self.machine()) is not None:
            self.write_machine(replace(machine, deadline_at=deadline_at))

    def note_program(self, inside: ProgramState) -> None:
        """Record the state that is told inside if it has changed since it was last seen: what is
        recorded here, such as why there is nothing to start, is newer than the one seen before."""
        if self.read(_INSIDE, lambda found: ProgramState(**found)) != inside:
            self.write(_INSIDE, asdict(inside), durable=False)
            self.write_program(inside)

    def request_end(self) -> None:
        (self.path / _END).touch()

    def end_is_requested(self) -> bool:
        return (self.path / _END).exists()

    def save_log(self, log: Log) -> None:
        """Save the program's output, for when its machine is gone."""
        draft = self.path / f".{_LOG}"
        draft.write_bytes(log.begins_at.to_bytes(8, "big") + log.content)
        draft.replace(self.path / _LOG)

    def has_log(self) -> bool:
        return (self.path / _LOG).exists()

    def saved_log(self, begin: int | None) -> Log:
        try:
            content = (self.path / _LOG).read_bytes()
        except FileNotFoundError:
            return Log(begin or 0, b"")
        begins_at, content = int.from_bytes(content[:8], "big"), content[8:]
        skipped = max(0, (begin or 0) - begins_at)
        return Log(begins_at + skipped, content[skipped:])


class SnapshotRecords:
    """The snapshots taken from here, with the facts that E2B does not report."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, snapshot: Snapshot) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        write_record(self._file(snapshot.id), asdict(snapshot))

    def list_all(self) -> list[Snapshot]:
        files = sorted(self._path.glob("*.json"))
        return [Snapshot(**json.loads(file.read_bytes())) for file in files]

    def remove(self, snapshot_id: str) -> None:
        self._file(snapshot_id).unlink(missing_ok=True)

    def _file(self, snapshot_id: str) -> Path:
        return self._path / f"{sha256(snapshot_id.encode()).hexdigest()}.json"
