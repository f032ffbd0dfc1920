"""The interface of the records of runs, without their machines."""

from contextlib import AbstractContextManager
from typing import Protocol

from sandyard.runtime.model import Limits, RunId, Running


class RunRecord(Protocol):
    """The record of one run. Each entry is complete or absent, and outlives the server."""

    def begin(self, limits: Limits, at: float) -> None:
        """Record that it is being started."""
        ...

    def begun_at(self) -> float | None: ...

    def limits(self) -> Limits:
        """Its limits, as passed to `begin`."""
        ...

    def write_launched(self, at: float) -> None:
        """Record when its program started."""
        ...

    def launched_at(self) -> float | None: ...

    def write_running(self, running: Running) -> None: ...

    def running(self) -> Running | None: ...

    def says_running(self) -> bool:
        """Whether `running` is recorded and no failure is; read for each session."""
        ...

    def write_failure(self, code: str, message: str, at: float) -> None:
        """Record why it did not start."""
        ...

    def failure(self) -> tuple[str, str, float] | None: ...

    def request_stop(self) -> None: ...

    def stop_is_requested(self) -> bool: ...

    def start_lock(self) -> AbstractContextManager[bool]:
        """Whether the start is ours; if not, another process has it for as long as it lives."""
        ...


class RunRecords(Protocol):
    def of(self, run_id: RunId) -> RunRecord: ...
