"""What follows from the state of a program."""

import pytest

from sandyard.runtime.guest.program import ProgramState, ended, starting


@pytest.mark.parametrize("code", [0, 7])
def test_a_start_waits_for_the_end_of_a_machine_that_ends_with_its_program(code: int) -> None:
    for policy in ("on_failure", "never", "ends_machine"):
        begun = starting(1.0, policy)
        assert not begun.is_start_over
        assert ProgramState("running", 2.0, policy).is_start_over
        over = ended(begun, code, started_at=1.0, at=2.0)
        assert over.is_start_over is (policy != "ends_machine")


def test_a_start_does_not_wait_for_a_program_that_is_started_again() -> None:
    failed = ended(starting(1.0, "on_failure"), 7, started_at=1.0, at=2.0)
    assert starting(3.0, "on_failure", after=failed).is_start_over
