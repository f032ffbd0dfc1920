"""The steps of a run that are the same on every runtime: checks, waiting, and errors."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from sandyard.kit.errors import InvalidError
from sandyard.runtime.errors import (
    START_FAILURES,
    AttemptEndedError,
    FilesTooLargeError,
    InvalidRepositoryError,
    NotRunningError,
    OverLimitError,
    ProcfileMissingError,
    RunNotFoundError,
    StartFailedError,
    StillRunningError,
    SupervisorLostError,
    WebLineMissingError,
    exited_at_once,
    start_failure,
)
from sandyard.runtime.model import (
    Ended,
    EndReason,
    Files,
    Limits,
    MachineState,
    Program,
    Repository,
    RunId,
    Running,
    RunState,
    Starting,
    Stopping,
    Up,
    path_parts,
    procfile_lines,
)
from sandyard.runtime.records.recorded_run import RecordedRun
from sandyard.runtime.repositories import BUILTIN, builtin_files, check_ref, check_url

State = TypeVar("State")
TAIL_LINES = 20
"""The number of log lines reported with a failure."""
_FIRST_PAUSE_SEC, _LONGER, _LONGEST_PAUSE_SEC = 0.005, 1.5, 0.05
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ENVIRONMENT_BYTES = 65536
_TOKEN = re.compile(r"[!-~]{1,2000}")
_BEFORE = "release"
"""A line that elsewhere runs once before the others; not here."""
_TOGETHER = "end() { trap '' TERM USR1; kill 0; exit $1; }\ntrap 'end 1' USR1\n"
"""Of several lines in one process group: if one ends, all end. SIGTERM is trapped once all have
begun, because a shell that has just been forked loses a signal that is."""


def check_startable(run: RunState | None) -> None:
    """Raises AttemptEndedError for a run that has run; a failed start is reported again instead."""
    if isinstance(run, Stopping) or (isinstance(run, Ended) and run.has_run):
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
    raise not_running(found)


def not_running(state: RunState | MachineState) -> NotRunningError:
    """With the reason, if it has ended or is about to."""
    if isinstance(state, Ended | Stopping) and state.message:
        return NotRunningError(f"This is not running now. {state.message} Start it again.")
    return NotRunningError()


def require_ended(run: RunState | None) -> Ended:
    """The end that was waited for. Raises RunNotFoundError if the run was forgotten meanwhile."""
    if isinstance(run, Ended):
        return run
    raise RunNotFoundError


def require_started(
    run: RunState | None, running: Running | None, *, log_lines: Sequence[str]
) -> Running:
    """The recorded running state, even if it has ended since; or raises why it did not start."""
    if isinstance(run, Ended) and not run.has_run:
        raise start_failure(run.error_code, run.message, log_lines=log_lines)
    if run is None or running is None:
        raise RunNotFoundError
    return running


def run_state(run_id: RunId, record: RecordedRun, machine: MachineState | None) -> RunState | None:
    begun_at, running = record.begun_at(), record.running()
    if begun_at is None:
        return None
    if (failure := record.failure()) is not None:
        code, message, at = failure
        launched_at = record.launched_at()
        return Ended(run_id, "not_started", at, launched_at, error_code=code, message=message)
    if running is None or machine is None:
        return Starting(run_id, begun_at) if running is None else None
    if isinstance(machine, Ended):
        return replace(machine, run_id=run_id, started_at=running.started_at)
    if isinstance(machine, Up):
        return replace(running, deadline_at=machine.deadline_at, program=record.program())
    message = machine.message if isinstance(machine, Stopping) else ""
    return Stopping(run_id, machine.since_at, message)


def start_failure_of(machine: MachineState | None, log_lines: Sequence[str]) -> StartFailedError:
    if not isinstance(machine, Ended):
        return SupervisorLostError()
    if machine.error_code is not None:
        return START_FAILURES.get(machine.error_code, StartFailedError)(machine.message)
    if machine.reason == "exited" and machine.exit_code is not None:
        return exited_at_once(machine.exit_code, log_lines)
    if machine.reason in ("out_of_memory", "out_of_storage", "disk_full"):
        words = machine.reason.replace("_", " ")
        return OverLimitError(f"The program was {words} before it listened.")
    return SupervisorLostError()


async def wait_until(
    is_done: Callable[[State], bool], refresh: Callable[[], Awaitable[State]], *, timeout_sec: float
) -> State:
    """The first state for which `is_done`. Raises TimeoutError."""
    until = time.monotonic() + timeout_sec
    pause_sec = _FIRST_PAUSE_SEC
    while not is_done(state := await refresh()):
        if time.monotonic() > until:
            raise TimeoutError
        await asyncio.sleep(pause_sec)
        pause_sec = min(_LONGER * pause_sec, _LONGEST_PAUSE_SEC)
    return state


def web_command(procfile: str | None, *, static_site: str | None) -> str:
    """The command to run: the Procfile's `web:` line, with all others beside it; without a
    Procfile, the static site if allowed."""
    if procfile is None:
        if static_site is None:
            raise ProcfileMissingError
        return static_site
    lines = dict(procfile_lines(procfile))
    if (command := lines.pop("web", None)) is None:
        raise WebLineMissingError
    lines.pop(_BEFORE, None)
    if not lines:
        return command
    others = [f"{{ (\n{each}\n); kill -USR1 $$; }} &\n" for each in lines.values()]
    return f"{_TOGETHER}{''.join(others)}(\n{command}\n) & trap 'end 1' TERM; wait $!; end $?"


def end_message(reason: EndReason, exit_code: int | None = None) -> str:
    return {
        "stopped": "It was stopped.",
        "timeout": "It reached its time limit.",
        "exited": f"Its program ended by itself, with code {exit_code}.",
        "out_of_memory": "It exceeded its memory limit.",
        "out_of_storage": "It exceeded its storage limit.",
        "disk_full": "It wrote files while the server's disk was nearly full.",
        "terminated": "Its host terminated it, as in a shutdown.",
        "killed": "It was killed; the end is when it was last seen.",
        "not_started": "It did not start.",
    }[reason]


def check_sizes(files: Mapping[str, bytes], limits: Limits) -> None:
    """Raises UnsafePathError or FilesTooLargeError."""
    for path in files:
        path_parts(path)
    if sum(map(len, files.values())) > limits.storage_bytes:
        raise FilesTooLargeError


def check_program(program: Program, limits: Limits) -> None:
    """Raises InvalidError if it can't be started."""
    check_environment(program.environment)
    source = program.source
    if isinstance(source, Files):
        check_sizes(source.contents, limits)
    elif isinstance(source, Repository):
        if program.snapshot_id is None and source.url.startswith(BUILTIN):
            builtin_files(source.url)
        elif program.snapshot_id is None:
            check_url(source.url)
        _check_repository(source)


def _check_repository(repository: Repository) -> None:
    if repository.ref is not None:
        check_ref(repository.ref)
    if repository.folder is not None:
        path_parts(repository.folder)
    if repository.token is not None and not _TOKEN.fullmatch(repository.token):
        raise InvalidRepositoryError("A repository's token must be one line of visible characters.")


def check_environment(environment: Mapping[str, str]) -> None:
    are_named = all(map(_VARIABLE.fullmatch, environment))
    text = "".join((*environment, *environment.values()))
    if not are_named or "\0" in text or len(text.encode(errors="replace")) > _ENVIRONMENT_BYTES:
        raise InvalidError(
            "Environment variables need plain names and values without NUL, at most 64 kB in total."
        )
