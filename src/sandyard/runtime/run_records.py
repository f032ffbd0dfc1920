"""What is known of runs besides their machines, as promises."""

from contextlib import AbstractContextManager
from typing import Protocol

from sandyard.runtime.model import Limits, RunId, Running


class RunRecord(Protocol):
    """Of one run. Each entry is there as a whole or not at all, and outlives the server."""

    def begin(self, limits: Limits) -> None:
        """Note that it is being started."""
        ...

    def begun_at(self) -> float | None: ...

    def limits(self) -> Limits:
        """What it may take, as `begin` was told."""
        ...

    def write_launched(self, at: float) -> None:
        """Note when its program began."""
        ...

    def launched_at(self) -> float | None: ...

    def write_running(self, running: Running) -> None: ...

    def running(self) -> Running | None: ...

    def says_running(self) -> bool:
        """Whether `running` is noted and no failure; asked for each session."""
        ...

    def write_failure(self, code: str, message: str, at: float) -> None:
        """Note why it did not start."""
        ...

    def failure(self) -> tuple[str, str, float] | None: ...

    def request_stop(self) -> None: ...

    def stop_is_requested(self) -> bool: ...

    def start_lock(self) -> AbstractContextManager[bool]:
        """Whether the start is ours; somebody else's, as long as that one lives, if not."""
        ...


class RunRecords(Protocol):
    def of(self, run_id: RunId) -> RunRecord: ...
