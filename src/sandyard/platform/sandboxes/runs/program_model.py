"""The program of a running sandbox as its row has it, without any I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sandyard.kit.changes.transitions import Cause, Transition, changed
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.runtime.guest.program import ProgramState

SHOWN_LINES = 10
_LINE_CHARS = 300


def program_record(state: ProgramState, log_lines: Sequence[str]) -> dict[str, Any]:
    """Its state, with the last lines of the log of one that failed."""
    lines = [line[:_LINE_CHARS] for line in log_lines[-SHOWN_LINES:]]
    return {**asdict(state), "last_lines": lines}


def is_recorded(program: Mapping[str, Any] | None, state: ProgramState | None) -> bool:
    if program is None or state is None:
        return state is None
    return program == {**asdict(state), "last_lines": program["last_lines"]}


def record_program(
    sandbox: Sandbox, *, attempt: int, program: Mapping[str, Any], cause: Cause
) -> tuple[Transition[Sandbox]] | None:
    """None if its run has ended, or that is recorded already."""
    if (sandbox.status, sandbox.attempt) != (Status.RUNNING, attempt) or sandbox.program == program:
        return None
    after = replace(sandbox, program=program, updated_at=cause.at)
    cause = cause.because(program["reason"] or None)
    return (changed(sandbox, after, f"program.{program['status']}", cause),)
