"""What is on disk about one run's sandbox at E2B, and about the snapshots that were taken."""

import json
import os
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from sandyard.runtime.e2b.session import Log
from sandyard.runtime.model import Limits, RunId, Running, RunState, Snapshot
from sandyard.runtime.records import RunFolder

_LOG = "log"


class E2bRunFolder(RunFolder):
    """The records of one run, and what was kept of its log."""

    def __init__(self, path: Path, run_id: RunId) -> None:
        super().__init__(path)
        self.run_id = run_id

    def begin(self, limits: Limits) -> None:
        """Note that a sandbox is about to be made, before it is."""
        self.write("spec", {"limits": asdict(limits)})

    def limits(self) -> Limits:
        return Limits(**(self.read("spec") or {})["limits"])

    def is_begun(self) -> bool:
        return self.read("spec") is not None

    def state(self) -> RunState | None:
        """How it stood when something was last written."""
        if not self.is_begun():
            return None
        if (ended := self.ended()) is not None:
            return ended
        running = self.running()
        if running is not None and self.ended(final=False) is None:
            return running
        return self.starting_or_stopping(self.run_id)

    def write_sandbox_id(self, sandbox_id: str) -> None:
        self.write("sandbox", {"sandbox_id": sandbox_id})

    def sandbox_id(self) -> str | None:
        found = self.read("sandbox")
        return None if found is None else str(found["sandbox_id"])

    def move_deadline(self, running: Running) -> None:
        self.write("deadline", {"deadline_at": running.deadline_at})

    def save_log(self, log: Log) -> None:
        """Keep what the program wrote, for when its sandbox is gone."""
        begin = log.begins_at.to_bytes(8, "big")
        (self.path / _LOG).write_bytes(begin + log.content)

    def saved_log(self) -> Log:
        try:
            content = (self.path / _LOG).read_bytes()
        except FileNotFoundError:
            return Log(0, b"")
        return Log(int.from_bytes(content[:8], "big"), content[8:])


class SnapshotRecords:
    """The snapshots that were taken from here, with what E2B does not tell of them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, snapshot: Snapshot) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        draft = self._path / f".new.{os.getpid()}"
        draft.write_text(json.dumps(asdict(snapshot)))
        draft.replace(self._file(snapshot.id))

    def find(self, snapshot_id: str) -> Snapshot | None:
        try:
            return Snapshot(**json.loads(self._file(snapshot_id).read_bytes()))
        except FileNotFoundError:
            return None

    def list_all(self) -> list[Snapshot]:
        files = sorted(self._path.glob("*.json"))
        return [Snapshot(**json.loads(file.read_bytes())) for file in files]

    def remove(self, snapshot_id: str) -> None:
        self._file(snapshot_id).unlink(missing_ok=True)

    def _file(self, snapshot_id: str) -> Path:
        return self._path / f"{sha256(snapshot_id.encode()).hexdigest()}.json"
