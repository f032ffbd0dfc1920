"""The state of a machine's program, and when it is started again. Inside a machine elsewhere the
shim decides by it, on this machine the supervisor."""

from dataclasses import dataclass
from typing import Literal

ProgramStatus = Literal["starting", "running", "failed", "stopped"]
ProgramPolicy = Literal["on_failure", "never", "ends_machine"]
"""What follows when the program ends: it is started again if it failed; nothing; or the machine
ends with it."""
MOST_PAUSE_SEC = 60.0
_STABLE_SEC = 60.0
"""A program that ran this long has not failed in a row."""


@dataclass(frozen=True, slots=True)
class ProgramState:
    """`starting` until its port listens; `stopped` was requested, or it ended with code 0. A failed
    one has its exit code, or the reason why it could not be started at all."""

    status: ProgramStatus
    since_at: float
    policy: ProgramPolicy = "on_failure"
    exit_code: int | None = None
    reason: str = ""
    restarts: int = 0
    """How often it was started again since it last ran for a while."""
    restarts_at: float | None = None

    @property
    def is_over(self) -> bool:
        return self.status in ("failed", "stopped")

    @property
    def is_start_over(self) -> bool:
        """It listens, or has failed. If its machine ends with it, only that end tells a failure."""
        if self.policy == "ends_machine":
            return self.status == "running"
        return self.status != "starting" or self.restarts > 0


def starting(
    at: float, policy: ProgramPolicy, *, after: ProgramState | None = None
) -> ProgramState:
    """With `after`, it is started again because it failed."""
    return ProgramState("starting", at, policy, restarts=after.restarts + 1 if after else 0)


def ended(program: ProgramState, code: int, *, started_at: float, at: float) -> ProgramState:
    """The program that has ended by itself; `restarts_at` is doubled with each failure in a row,
    up to a minute."""
    if code == 0:
        return ProgramState("stopped", at, program.policy, code)
    restarts = 0 if at - started_at >= _STABLE_SEC else program.restarts
    restarts_at = None
    if program.policy == "on_failure":
        restarts_at = at + min(2.0 ** min(restarts, 10), MOST_PAUSE_SEC)
    reason = f"It ended with code {code}."
    return ProgramState("failed", at, program.policy, code, reason, restarts, restarts_at)
