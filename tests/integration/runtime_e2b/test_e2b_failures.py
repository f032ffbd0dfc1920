"""What goes wrong at E2B, at a start, in between and at the end: nothing is lost or made twice."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.kit.errors import UnavailableError
from sandyard.runtime.e2b.control import E2bTimeouts
from sandyard.runtime.e2b.errors import (
    E2bKeyRefusedError,
    E2bRateLimitedError,
    E2bUnavailableError,
)
from sandyard.runtime.errors import (
    NotRunningError,
    StartFailedError,
    SupervisorLostError,
)
from sandyard.runtime.model import (
    Ended,
    Program,
    Repository,
    RunId,
    Running,
)
from sandyard.runtime.programs.runner import ProgramRunner
from tests.integration.runtime_e2b.runtimes import (
    IMPATIENT,
    connect_to,
    failure_of,
    start,
)
from tests.support.e2b.machines import LONGEST_SEC, E2bMachines
from tests.support.runtime.git_server import GitServer
from tests.support.runtime.programs import LIMITS, new_run_id, shell

FIRST_READER_HANGS = """
case "$BASH_EXECUTION_STRING" in *read_log*) mkdir ~/reading && sleep 1000 ;; esac
"""
"""A profile for the shell that every call into a machine begins with."""
FEW_KINDS = ("drop", "rate_limited", "lost")
OTHER_KINDS = ("error", "unavailable", "nonsense", "unauthorized")
KINDS = (*FEW_KINDS, *(pytest.param(kind, marks=pytest.mark.torture) for kind in OTHER_KINDS))


async def test_a_repository_that_can_not_be_used_is_told(
    double: E2bMachines, runtime: ProgramRunner, git: GitServer
) -> None:
    urls = {
        git.add("no-procfile", {"README": b"nothing to run"}): "PROCFILE_MISSING",
        "https://127.0.0.1:9/nothing.git": "CLONE_FAILED",
    }
    for url, code in urls.items():
        program = Program(Repository(url), policy="ends_machine")
        error = await failure_of(runtime, program, new_run_id())
        assert error.code == code
    assert double.boxes == []


async def test_what_e2b_refuses_to_make_is_a_failed_start(
    double: E2bMachines, runtime: ProgramRunner
) -> None:
    limits = replace(LIMITS, max_running_sec=LONGEST_SEC + 1)
    with pytest.raises(StartFailedError, match="greater than 24 hours"):
        await start(runtime, limits=limits)
    assert double.boxes == []


@pytest.mark.parametrize("kind", KINDS)
async def test_trouble_is_not_an_end(
    double: E2bMachines, runtime: ProgramRunner, kind: str
) -> None:
    running = await start(runtime)
    double.inject(kind)
    for call in (runtime.refresh, runtime.stop, runtime.sample):
        with pytest.raises(UnavailableError):
            await call(running.run_id)
    with pytest.raises(UnavailableError):
        await runtime.list_runs("sandbox")
    double.calm()
    assert await runtime.list_runs("sandbox") == [running]
    assert len(double.boxes) == 1


@pytest.mark.parametrize("kind", [*KINDS, "not_found"])
async def test_trouble_inside_is_not_an_end_while_e2b_says_that_it_runs(
    double: E2bMachines, runtime: ProgramRunner, kind: str
) -> None:
    running = await start(runtime)
    for operation in ("download", "health", "run", "upload"):
        if kind != "not_found" or operation != "download":
            double.inject(kind, operation)
    assert await runtime.refresh(running.run_id) == running
    double.calm()
    assert await runtime.refresh(running.run_id) == running


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("rate_limited", E2bRateLimitedError),
        ("unauthorized", E2bKeyRefusedError),
        ("drop", E2bUnavailableError),
    ],
)
async def test_each_trouble_is_told_as_what_it_is(
    double: E2bMachines, runtime: ProgramRunner, kind: str, expected: type[UnavailableError]
) -> None:
    await runtime.check()
    double.inject(kind, retry_after=17 if kind == "rate_limited" else None)
    with pytest.raises(UnavailableError) as raised:
        await runtime.check()
    assert type(raised.value) is expected
    assert raised.value.retry_after == (17 if kind == "rate_limited" else 5)


@pytest.mark.parametrize("kind", ["drop_after", "hang_after"])
async def test_of_a_create_whose_answer_was_lost_nothing_is_left_but_its_end(
    double: E2bMachines, tmp_path: Path, kind: str
) -> None:
    run_id = new_run_id()
    double.inject(kind, "create")
    with pytest.raises(UnavailableError):
        await start(connect_to(double, tmp_path / "runtime", IMPATIENT), run_id=run_id)
    double.calm()
    assert (len(double.boxes), double.calls["create"]) == (1, 1)
    restarted = connect_to(double, tmp_path / "runtime")
    [held] = await restarted.list_runs("sandbox")
    assert isinstance(held, Ended)
    assert (held.run_id, held.reason, held.error_code) == (run_id, "not_started", "SUPERVISOR_LOST")
    assert double.boxes == []
    await start(restarted, run_id=replace(run_id, attempt="next"))
    assert len(double.boxes) == 1


@pytest.mark.parametrize("operation", ["upload", "run", "timeout", "get"])
async def test_of_a_start_that_breaks_off_nothing_is_left_but_its_end(
    double: E2bMachines, runtime: ProgramRunner, operation: str
) -> None:
    run_id = new_run_id()
    double.inject("error", operation)
    with pytest.raises(UnavailableError):
        await start(runtime, run_id=run_id)
    double.calm()
    held = await runtime.refresh(run_id)
    assert isinstance(held, Ended)
    assert held.reason == "not_started"
    assert double.boxes == []


async def test_a_server_that_stops_while_a_program_starts_leaves_none(
    double: E2bMachines, runtime: ProgramRunner, tmp_path: Path
) -> None:
    run_id = new_run_id()
    starting = asyncio.create_task(start(runtime, shell("exec sleep 1000"), run_id=run_id))
    async with asyncio.timeout(60):
        while not double.calls["run"]:
            await asyncio.sleep(0.01)
    starting.cancel()
    await asyncio.wait([starting])
    restarted = connect_to(double, tmp_path / "runtime")
    [held] = await restarted.list_runs("sandbox")
    assert isinstance(held, Ended)
    assert double.boxes == []


async def test_a_sandbox_that_came_too_late_is_killed_and_those_of_others_are_not(
    double: E2bMachines, runtime: ProgramRunner, tmp_path: Path
) -> None:
    elsewhere = connect_to(double, tmp_path / "elsewhere", node="elsewhere")
    theirs, mine = await start(elsewhere), await start(runtime)
    late = RunId("sandbox", "box", "late")
    await start(runtime, run_id=late)
    for path in (tmp_path / "runtime" / "held" / "sandbox" / "box" / "late").iterdir():
        path.unlink()
    assert len(double.boxes) == 3
    assert await runtime.list_runs("sandbox") == [mine]
    assert len(double.boxes) == 2
    assert await elsewhere.find(theirs.run_id) == theirs
    assert await runtime.list_runs("preview") == []


@pytest.mark.parametrize(
    ("operation", "kind"),
    [("snapshot", "unavailable"), ("snapshot", "not_found"), ("delete", "unavailable")],
)
async def test_a_stop_that_breaks_off_is_finished_later_with_the_true_end(
    double: E2bMachines, runtime: ProgramRunner, operation: str, kind: str
) -> None:
    running = await start(runtime)
    double.inject(kind, operation, times=1)
    with pytest.raises(UnavailableError):
        await runtime.stop(running.run_id)
    double.inject("unavailable")
    with pytest.raises(UnavailableError):
        await runtime.refresh(running.run_id)
    double.calm()
    end = await runtime.refresh(running.run_id)
    assert isinstance(end, Ended)
    assert end.reason == "stopped"
    assert end.snapshot is not None
    assert (double.boxes, len(double.snapshots)) == ([], 1)


async def test_after_a_while_it_ends_without_a_snapshot(
    double: E2bMachines, tmp_path: Path
) -> None:
    runtime = connect_to(double, tmp_path / "runtime", E2bTimeouts(snapshot_retry_sec=0))
    running = await start(runtime)
    double.inject("error", "snapshot")
    end = await runtime.stop(running.run_id)
    assert (end.reason, end.snapshot) == ("stopped", None)
    assert end.snapshot_error is not None
    assert end.snapshot_error.startswith("E2B returned no valid response")
    assert double.boxes == []


async def test_one_that_e2b_loses_at_the_start_has_failed(
    double: E2bMachines, runtime: ProgramRunner
) -> None:
    double.inject("not_found", "timeout")
    with pytest.raises(SupervisorLostError):
        await start(runtime)
    assert double.boxes == []


async def test_a_wrong_key_is_told_and_nothing_is_kept_of_it(
    double: E2bMachines, tmp_path: Path
) -> None:
    stranger = connect_to(double, tmp_path / "runtime", api_key="e2b_another_key")
    with pytest.raises(E2bKeyRefusedError) as raised:
        await stranger.check()
    assert "e2b_another_key" not in f"{raised.value} {raised.value.reason}"
    with pytest.raises(E2bKeyRefusedError):
        await stranger.delete_snapshot("team/none:default")


async def test_gone_in_the_moment_of_a_call_is_not_running(
    double: E2bMachines, runtime: ProgramRunner
) -> None:
    running = await start(runtime)
    double.inject("not_found", "metrics", times=1)
    with pytest.raises(NotRunningError):
        await runtime.sample(running.run_id)
    double.inject("not_found", "timeout", times=1)
    with pytest.raises(NotRunningError):
        await runtime.extend(running.run_id, deadline_at=running.deadline_at)
    assert isinstance(await runtime.refresh(running.run_id), Running)


async def reader_that_hangs(
    double: E2bMachines, runtime: ProgramRunner, run_id: RunId
) -> asyncio.Task[Sequence[str]]:
    """A caller that reads the log, whose process inside runs now and does not end by itself."""
    [machine] = double.machines.values()
    machine.path(".profile").write_text(FIRST_READER_HANGS)
    reading = asyncio.create_task(runtime.tail_logs(run_id, lines=9))
    async with asyncio.timeout(60):
        while not machine.path("reading").exists():
            await asyncio.sleep(0.01)
    return reading


async def test_a_log_that_is_read_while_its_run_ends_is_the_whole_one(
    double: E2bMachines, runtime: ProgramRunner, tmp_path: Path
) -> None:
    running = await start(runtime)
    reading = await reader_that_hangs(double, runtime, running.run_id)
    end = await connect_to(double, tmp_path / "runtime").stop(running.run_id)
    assert end.reason == "stopped"
    assert "this is run 1" in await reading


async def test_a_log_whose_reader_is_killed_while_its_run_goes_on_is_unavailable(
    double: E2bMachines, runtime: ProgramRunner
) -> None:
    running = await start(runtime)
    reading = await reader_that_hangs(double, runtime, running.run_id)
    [machine] = double.machines.values()
    os.killpg(max(machine.commands), signal.SIGKILL)
    with pytest.raises(E2bUnavailableError):
        await reading
    assert await runtime.refresh(running.run_id) == running
