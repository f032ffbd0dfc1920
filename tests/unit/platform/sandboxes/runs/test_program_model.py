"""The program of a sandbox in its row."""

from dataclasses import replace

from sandyard.platform.sandboxes.model import Status
from sandyard.platform.sandboxes.runs.program_model import (
    is_recorded,
    program_record,
    record_program,
)
from sandyard.runtime.guest.program import ProgramState
from tests.unit.platform.sandboxes.examples import SANDBOX, by

FAILED = ProgramState("failed", 5.0, exit_code=3, reason="It ended with code 3.")
RUNNING = replace(SANDBOX, status=Status.RUNNING, attempt=2)


def test_a_change_of_its_program_is_recorded_once_with_its_reason_and_last_lines() -> None:
    program = program_record(FAILED, [f"line {number}" * 100 for number in range(20)])
    made = record_program(RUNNING, attempt=2, program=program, cause=by())
    assert made is not None
    [event] = made[0].events
    assert (event.kind, event.reason) == ("program.failed", "It ended with code 3.")
    lines = made[0].result.program["last_lines"]  # type: ignore[index]
    assert (len(lines), len(lines[-1]), lines[-1][:7]) == (10, 300, "line 19")
    assert record_program(made[0].result, attempt=2, program=program, cause=by()) is None
    assert is_recorded(made[0].result.program, FAILED)
    assert not is_recorded(made[0].result.program, replace(FAILED, restarts=1))
    assert not is_recorded(None, FAILED)
    assert is_recorded(None, None)


def test_one_of_a_run_that_has_ended_is_not_recorded() -> None:
    program = program_record(FAILED, [])
    for other in (replace(RUNNING, attempt=3), replace(RUNNING, status=Status.STOPPED)):
        assert record_program(other, attempt=2, program=program, cause=by()) is None
