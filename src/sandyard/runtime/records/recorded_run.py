"""What is recorded of one run, wherever its records are: a record for each step of its life."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

from sandyard.runtime.errors import RunNotFoundError
from sandyard.runtime.guest.program import ProgramState
from sandyard.runtime.model import Ended, Limits, RunId, Running, Snapshot

T = TypeVar("T")
# Records outlive the code that wrote them, so their names stay.
_NAMES_ON_DISK = {
    "run_id": "owner",
    "snapshot_error": "snapshot_trouble",
    "base_files": "skeleton",
}
_NAMES_IN_CODE = {on_disk: in_code for in_code, on_disk in _NAMES_ON_DISK.items()}


class RecordedRun(ABC):
    """Reads the records of a run. Each is complete or absent."""

    @abstractmethod
    def read(self, name: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
        """None if there is no such record. Raises RecordBrokenError."""

    @abstractmethod
    def stop_is_requested(self) -> bool: ...

    def begun_at(self) -> float | None:
        return self.read("begun", _time_of)

    def limits(self) -> Limits:
        """Raises RunNotFoundError if nothing was begun."""
        if (limits := self.read("begun", lambda found: Limits(**found["limits"]))) is None:
            raise RunNotFoundError
        return limits

    def failure(self) -> tuple[str, str, float] | None:
        return self.read("failure", lambda found: (found["code"], found["message"], found["at"]))

    def launched_at(self) -> float | None:
        return self.read("launched", _time_of)

    def running(self) -> Running | None:
        return self.read("running", lambda found: Running(**from_record(found)))

    def program(self) -> ProgramState | None:
        return self.read("program", lambda found: ProgramState(**found))

    def says_running(self) -> bool:
        """Whether `running` is recorded and no failure is; read for each session."""
        return self.running() is not None and self.failure() is None

    def ended(self, *, final: bool = True) -> Ended | None:
        return self.read("ended" if final else "ending", _ended)


class RunRecord(RecordedRun):
    """The records of a run, to read and to write. What is read is at most as old as the last state
    of its machine that was asked for; a write returns when all servers find it."""

    @abstractmethod
    async def put(self, name: str, record: dict[str, Any], *, durable: bool = True) -> None:
        """One that is not durable may be lost with this server."""

    @abstractmethod
    async def put_stop(self) -> None:
        """Record that its end was requested. Raises RunNotFoundError."""

    @abstractmethod
    def start_lock(self) -> AbstractAsyncContextManager[bool]:
        """Whether the start is ours; if not, another server has it for as long as that runs."""


class RunRecords(Protocol):
    def of(self, run_id: RunId) -> RunRecord: ...


def begun_record(limits: Limits, at: float) -> dict[str, Any]:
    return {"at": at, "limits": asdict(limits)}


def failure_record(code: str, message: str, at: float) -> dict[str, Any]:
    return {"code": code, "message": message, "at": at}


def running_record(running: Running) -> dict[str, Any]:
    """Without its program, whose state has a record of its own."""
    fields = to_record(asdict(running))
    del fields["program"]
    return fields


def to_record(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass by their names on disk."""
    return {_NAMES_ON_DISK.get(name, name): value for name, value in fields.items()}


def from_record(record: dict[str, Any]) -> dict[str, Any]:
    fields = {_NAMES_IN_CODE.get(name, name): value for name, value in record.items()}
    return fields | {"run_id": RunId(**fields["run_id"])}


def _time_of(record: dict[str, Any]) -> float:
    return float(record["at"])


def _ended(record: dict[str, Any]) -> Ended:
    snapshot = record["snapshot"]
    fields = from_record(record) | {"snapshot": Snapshot(**snapshot) if snapshot else None}
    return Ended(**fields)
