"""The steps of a run that are the same wherever it runs: refuse, wait, tell."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from sandyard.runtime.errors import (
    AttemptEndedError,
    NotRunningError,
    ProcfileMissingError,
    RunNotFoundError,
    StillRunningError,
    WebLineMissingError,
    start_failure,
)
from sandyard.runtime.model import Ended, EndReason, Running, RunState, Stopping, web_line

TAIL_LINES = 20
"""So many of the last log lines are told with a failure."""


def check_startable(run: RunState | None) -> None:
    """Raises AttemptEndedError for what has run; a start that failed is told again instead."""
    if isinstance(run, Stopping) or (isinstance(run, Ended) and run.has_listened):
        raise AttemptEndedError


def check_ended(run: RunState) -> None:
    if not isinstance(run, Ended):
        raise StillRunningError


def require_run(run: RunState | None) -> RunState:
    if run is None:
        raise RunNotFoundError
    return run


def require_running(run: RunState | None) -> Running:
    if isinstance(found := require_run(run), Running):
        return found
    raise NotRunningError


def require_ended(run: RunState | None) -> Ended:
    """The end that was waited for; whoever forgot it meanwhile left nothing to tell."""
    if isinstance(run, Ended):
        return run
    raise RunNotFoundError


def require_started(
    run: RunState | None, running: Running | None, *, log_lines: Sequence[str]
) -> Running:
    """What was recorded as running, also if it has ended since; or why it did not start."""
    if isinstance(run, Ended) and not run.has_listened:
        raise start_failure(run.error_code, run.message, log_lines=log_lines)
    if run is None or running is None:
        raise RunNotFoundError
    return running


async def wait_until(
    is_done: Callable[[RunState | None], bool],
    find: Callable[[], Awaitable[RunState | None]],
    *,
    timeout_sec: float,
    poll_sec: float,
) -> RunState | None:
    """The first state that is done. Raises TimeoutError."""
    until = time.monotonic() + timeout_sec
    while not is_done(run := await find()):
        if time.monotonic() > until:
            raise TimeoutError
        await asyncio.sleep(poll_sec)
    return run


def web_command(procfile: str | None, *, static_site: str | None) -> str:
    """What to run: the Procfile's `web:` line; without a Procfile, the static site if allowed."""
    if procfile is None:
        if static_site is None:
            raise ProcfileMissingError
        return static_site
    command = web_line(procfile)
    if command is None:
        raise WebLineMissingError
    return command


def end_message(reason: EndReason, exit_code: int | None = None) -> str:
    return {
        "stopped": "It was stopped.",
        "timeout": "It reached its time limit.",
        "exited": f"Its program ended by itself, with code {exit_code}.",
        "out_of_memory": "It exceeded its memory limit.",
        "out_of_storage": "It exceeded its storage limit.",
        "killed": "It was killed; the end is when it was last seen.",
        "not_started": "It did not start.",
    }[reason]
