"""What may follow on each state of a run."""

import subprocess
import time

import pytest

from sandyard.runtime.errors import (
    AttemptEndedError,
    CloneFailedError,
    NotRunningError,
    ProcfileMissingError,
    RunNotFoundError,
    StillRunningError,
    WebLineMissingError,
)
from sandyard.runtime.model import Ended, RunId, Running, RunState, Starting, Stopping
from sandyard.runtime.programs.lifecycle import (
    check_ended,
    check_startable,
    require_ended,
    require_run,
    require_running,
    require_started,
    wait_until,
    web_command,
)

RUN_ID = RunId("sandbox", "box", "1")
STARTING = Starting(RUN_ID, since_at=1)
RUNNING = Running(RUN_ID, 8080, started_at=1, deadline_at=9)
STOPPING = Stopping(RUN_ID, since_at=2)
ENDED = Ended(RUN_ID, "stopped", ended_at=3, started_at=1)
NOT_STARTED = Ended(RUN_ID, "not_started", ended_at=3, error_code="CLONE_FAILED", message="No.")


@pytest.mark.parametrize("run", [None, STARTING, RUNNING, NOT_STARTED])
def test_what_has_not_ended_may_be_started_and_a_failure_be_told_again(
    run: RunState | None,
) -> None:
    check_startable(run)


@pytest.mark.parametrize("run", [STOPPING, ENDED])
def test_an_attempt_runs_once(run: RunState) -> None:
    with pytest.raises(AttemptEndedError):
        check_startable(run)


@pytest.mark.parametrize("run", [STARTING, RUNNING, STOPPING])
def test_only_what_has_ended_is_ended(run: RunState) -> None:
    with pytest.raises(StillRunningError):
        check_ended(run)
    with pytest.raises(RunNotFoundError):
        require_ended(run)
    check_ended(ENDED)
    assert require_ended(ENDED) is ENDED


@pytest.mark.parametrize("run", [STARTING, STOPPING, ENDED, NOT_STARTED])
def test_only_what_runs_is_running(run: RunState) -> None:
    assert require_run(run) is run
    with pytest.raises(NotRunningError):
        require_running(run)
    assert require_running(RUNNING) is RUNNING


def test_what_has_ended_says_why() -> None:
    for ended in (NOT_STARTED, Stopping(RUN_ID, 2, "No.")):
        with pytest.raises(NotRunningError, match=r"not running now\. No\. Start"):
            require_running(ended)


def test_what_is_not_there_is_not_found() -> None:
    for require in (require_run, require_running, require_ended):
        with pytest.raises(RunNotFoundError):
            require(None)


def test_a_start_tells_what_runs_or_ran_or_why_it_failed() -> None:
    assert require_started(RUNNING, RUNNING, log_lines=[]) is RUNNING
    assert require_started(ENDED, RUNNING, log_lines=[]) is RUNNING
    with pytest.raises(CloneFailedError, match="No") as failed:
        require_started(NOT_STARTED, None, log_lines=["one", "two"])
    assert failed.value.details == {"log": ["one", "two"]}
    with pytest.raises(RunNotFoundError):
        require_started(None, RUNNING, log_lines=[])


async def test_a_state_is_waited_for_until_the_time_is_over() -> None:
    states: list[RunState | None] = [STARTING, STARTING, RUNNING]

    async def find() -> RunState | None:
        return states.pop(0) if len(states) > 1 else states[0]

    def runs(run: RunState | None) -> bool:
        return isinstance(run, Running)

    assert await wait_until(runs, find, timeout_sec=60) is RUNNING
    states[:] = [STARTING]
    with pytest.raises(TimeoutError):
        await wait_until(runs, find, timeout_sec=0)


async def test_a_state_that_takes_long_is_read_less_and_less_often() -> None:
    at: list[float] = []

    async def refresh() -> int:
        at.append(time.monotonic())
        return len(at)

    await wait_until(lambda count: count == 8, refresh, timeout_sec=60)
    assert at[1] - at[0] < at[7] - at[6]


def test_the_command_is_the_web_line_or_the_static_site() -> None:
    assert web_command("web: serve\n", static_site="site") == "serve"
    assert web_command("web: serve\nrelease: migrate\n", static_site="site") == "serve"
    assert web_command(None, static_site="site") == "site"
    with pytest.raises(ProcfileMissingError):
        web_command(None, static_site=None)
    with pytest.raises(WebLineMissingError):
        web_command("worker: work\n", static_site="site")


def test_the_lines_of_a_procfile_end_together() -> None:
    """As real processes of one group, as a program has it; also while others still begin."""
    for ends, code in (("web", 3), ("worker", 1)) * 10:
        lines = {"web": "sleep 60", "worker": "sleep 60"} | {ends: "exit 3 # it ends"}
        procfile = "".join(f"{name}: {line}\n" for name, line in lines.items())
        command = ["env", "--default-signal=TERM", "sh", "-c"]
        command.append(web_command(procfile, static_site=None))
        done = subprocess.run(
            command, start_new_session=True, capture_output=True, timeout=20, check=False
        )
        assert done.returncode == code
