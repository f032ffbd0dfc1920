"""What a run is at E2B, besides what every runtime promises."""

import asyncio
import time
from dataclasses import replace

import pytest

from sandyard.runtime.e2b.errors import E2bNotMeasuredError, E2bRefusedError
from sandyard.runtime.errors import (
    ExitedAtOnceError,
    InvalidRepositoryError,
    SnapshotNotFoundError,
    UnsafePathError,
)
from sandyard.runtime.model import Ended, FileChanges, Program, Repository
from sandyard.runtime.programs.runner import ProgramRunner
from tests.integration.runtime_e2b.runtimes import COUNTING, ended, page_of, start
from tests.support.e2b.machines import E2bMachines
from tests.support.runtime.git_server import GitServer
from tests.support.runtime.programs import LIMITS, new_run_id, shell


async def test_a_run_is_a_sandbox_until_its_end_and_a_snapshot_after_it(
    double: E2bMachines, runtime: ProgramRunner
) -> None:
    first = await start(runtime)
    [box] = double.boxes
    assert first.port == 8080
    assert first.deadline_at == pytest.approx(box.end_at.timestamp())
    assert LIMITS.max_running_sec <= first.deadline_at - first.started_at < 700
    assert box.metadata == {
        "kind": "sandbox",
        "node": "here",
        "id": first.run_id.id,
        "attempt": first.run_id.attempt,
    }
    end = await runtime.stop(first.run_id)
    assert end.snapshot is not None
    assert double.boxes == []
    [kept] = double.snapshots.values()
    assert kept.processes == 0
    again = await start(runtime, replace(COUNTING, snapshot_id=end.snapshot.id))
    assert (await page_of(double, again)).text == "run\nrun\n"
    assert (await runtime.tail_logs(again.run_id, lines=9))[0] == "this is run 2"
    with pytest.raises(E2bRefusedError):
        await runtime.delete_snapshot(end.snapshot.id)
    await runtime.stop(again.run_id)
    for snapshot in await runtime.list_snapshots():
        await runtime.delete_snapshot(snapshot.id)
    assert (double.snapshots, await runtime.list_snapshots()) == ({}, [])


async def test_it_is_measured(double: E2bMachines, runtime: ProgramRunner) -> None:
    running = await start(runtime)
    sample = await runtime.sample(running.run_id)
    assert sample.at == pytest.approx(time.time(), abs=5)
    assert sample.cpu_seconds == pytest.approx((sample.at - running.started_at) / 2, abs=0.01)
    assert (sample.memory_bytes, sample.storage_bytes > 0) == (100 << 20, True)
    assert sample.processes > 1
    double.is_measuring = False
    with pytest.raises(E2bNotMeasuredError):
        await runtime.sample(running.run_id)


async def test_at_its_deadline_it_ends_and_its_files_are_kept(
    double: E2bMachines, runtime: ProgramRunner
) -> None:
    running = await start(runtime, limits=replace(LIMITS, max_running_sec=1))
    end = await ended(runtime, running.run_id)
    assert (end.reason, end.ended_at) == ("timeout", running.deadline_at)
    assert 1 <= end.ended_at - running.started_at < 30
    assert end.snapshot is not None
    assert double.boxes == []
    assert "this is run 1" in await runtime.tail_logs(running.run_id, lines=10)
    again = await start(runtime, replace(COUNTING, snapshot_id=end.snapshot.id))
    assert (await page_of(double, again)).text == "run\nrun\n"


async def test_its_deadline_can_be_moved(double: E2bMachines, runtime: ProgramRunner) -> None:
    running = await start(runtime)
    for seconds in (6000, 600):
        moved = await runtime.extend(running.run_id, deadline_at=time.time() + seconds)
        assert moved.deadline_at == pytest.approx(time.time() + seconds, abs=60)
        assert double.boxes[0].end_at.timestamp() == pytest.approx(moved.deadline_at)
        assert await runtime.refresh(running.run_id) == moved


async def test_one_that_e2b_has_no_more_was_killed(
    double: E2bMachines, runtime: ProgramRunner
) -> None:
    running = await start(runtime)
    assert await runtime.refresh(running.run_id) == running
    double.end(double.boxes[0].sandbox_id)
    end = await runtime.refresh(running.run_id)
    assert isinstance(end, Ended)
    assert (end.reason, end.snapshot) == ("killed", None)
    assert end.snapshot_error == "E2B has it no more"
    assert running.started_at <= end.ended_at <= time.time()


async def test_processes_that_left_their_parent_end_with_it(
    double: E2bMachines, runtime: ProgramRunner
) -> None:
    program = shell("setsid sleep 1000 & exec python3 -m http.server $PORT")
    running = await start(runtime, program)
    await runtime.stop(running.run_id)
    [kept] = double.snapshots.values()
    assert kept.processes == 0


async def test_a_link_in_the_way_is_refused_before_anything_is_written(
    double: E2bMachines, runtime: ProgramRunner
) -> None:
    running = await start(runtime, shell("ln -s / out; exec python3 -m http.server $PORT"))
    for path in ("../escape", "/etc/passwd", "out/tmp/escape"):
        changes = FileChanges(written={"fine": b"", path: b""})
        with pytest.raises(UnsafePathError):
            await runtime.write_files(running.run_id, changes)
    assert (await page_of(double, running, "/fine")).status_code == 404


async def test_a_repository_is_cloned(
    double: E2bMachines, runtime: ProgramRunner, git: GitServer
) -> None:
    url = git.add(
        "fine", {"Procfile": b"web: exec python3 -m http.server $PORT\n", "runs": b"cloned"}
    )
    cloned = await start(runtime, Program(Repository(url)))
    assert (await page_of(double, cloned)).text == "cloned"


async def test_however_many_starts_there_are_one_sandbox_is_made(
    double: E2bMachines, runtime: ProgramRunner
) -> None:
    run_id = new_run_id()
    await asyncio.gather(*(start(runtime, run_id=run_id) for _ in range(5)))
    assert len(double.boxes) == double.calls["create"] == 1
    failed, failing = new_run_id(), replace(shell("exit 3"), policy="ends_machine")
    for _ in range(2):
        with pytest.raises(ExitedAtOnceError):
            await start(runtime, failing, run_id=failed)
    assert (len(double.boxes), double.calls["create"]) == (1, 2)
    for program in (Program(Repository("file:///etc")), replace(COUNTING, snapshot_id="none")):
        with pytest.raises((InvalidRepositoryError, SnapshotNotFoundError)):
            await start(runtime, program)
    assert (double.snapshots, double.calls["create"]) == ({}, 2)
