"""How a run stands, by its record and its machine."""

from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.runtime.errors import (
    ExitedAtOnceError,
    OverLimitError,
    RestoreFailedError,
    StartFailedError,
    SupervisorLostError,
)
from sandyard.runtime.model import (
    Ended,
    Limits,
    MachineState,
    RunId,
    Running,
    Starting,
    Stopping,
    Up,
)
from sandyard.runtime.programs.lifecycle import run_state, start_failure_of
from sandyard.runtime.records.recorded_run import begun_record, failure_record, running_record
from sandyard.runtime.records.run_folder import RunFolder

RUN_ID = RunId("sandbox", "box", "1")
LIMITS = Limits(cpu=1, memory_bytes=2, processes=3, storage_bytes=4, max_running_sec=5)
RUNNING = Running(RUN_ID, 8080, started_at=10, deadline_at=70)
UP = Up(RUN_ID, 8080, created_at=9, deadline_at=99)
ENDED = Ended(RUN_ID, "stopped", ended_at=50)


@pytest.fixture
def record(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.write("begun", begun_record(LIMITS, 1.0))
    return folder


def test_what_was_never_begun_is_not_there(tmp_path: Path) -> None:
    assert run_state(RUN_ID, RunFolder(tmp_path), UP) is None


@pytest.mark.parametrize("machine", [None, UP, Starting(RUN_ID, 1), Stopping(RUN_ID, 2), ENDED])
def test_until_it_runs_or_has_failed_it_is_starting(
    record: RunFolder, machine: MachineState | None
) -> None:
    assert isinstance(run_state(RUN_ID, record, machine), Starting)


def test_one_that_runs_has_its_machines_deadline(record: RunFolder) -> None:
    record.write("running", running_record(RUNNING))
    assert run_state(RUN_ID, record, UP) == replace(RUNNING, deadline_at=99)
    assert run_state(RUN_ID, record, Stopping(RUN_ID, 40, "Why.")) == Stopping(RUN_ID, 40, "Why.")
    assert run_state(RUN_ID, record, ENDED) == replace(ENDED, started_at=10)
    assert run_state(RUN_ID, record, None) is None


def test_a_failure_is_told_with_when_its_program_began(record: RunFolder) -> None:
    record.write("launched", {"at": 11})
    record.write("failure", failure_record("NOT_LISTENING", "It did not listen.", 12))
    state = run_state(RUN_ID, record, UP)
    assert isinstance(state, Ended)
    assert (state.reason, state.error_code, state.ended_at) == ("not_started", "NOT_LISTENING", 12)
    assert state.started_at == 11


@pytest.mark.parametrize(
    ("machine", "kind"),
    [
        (None, SupervisorLostError),
        (replace(ENDED, reason="killed"), SupervisorLostError),
        (replace(ENDED, reason="exited", exit_code=3), ExitedAtOnceError),
        (replace(ENDED, reason="out_of_memory"), OverLimitError),
        (replace(ENDED, reason="out_of_storage"), OverLimitError),
        (replace(ENDED, error_code="RESTORE_FAILED", message="No."), RestoreFailedError),
    ],
)
def test_why_a_start_came_to_nothing(machine: Ended | None, kind: type[StartFailedError]) -> None:
    assert type(start_failure_of(machine, ["last line"])) is kind
