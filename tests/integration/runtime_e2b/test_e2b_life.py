"""A program at E2B from its start to its end, and to its next start."""

import asyncio
import time
from collections import defaultdict
from dataclasses import replace

import pytest

from sandyard.platform.runtime.e2b.errors import E2bNotMeasuredError, E2bRefusedError
from sandyard.platform.runtime.e2b.runtime import E2bRuntime
from sandyard.platform.runtime.errors import (
    AttemptEndedError,
    NotHeldError,
    NotRunningError,
    StillRunningError,
    UnsafePathError,
)
from sandyard.platform.runtime.model import Ended, FileChanges, Program, Repository, Running
from tests.e2b_machines import E2bMachines
from tests.integration.runtime.git_server import GitServer
from tests.integration.runtime.programs import LIMITS, STATIC, new_owner, shell
from tests.integration.runtime_e2b.runtimes import COUNTING, ended, page_of, start


async def test_it_starts_serves_stops_and_finds_its_files_again(
    double: E2bMachines, runtime: E2bRuntime
) -> None:
    began_at = time.time()
    first = await start(runtime)
    [box] = double.boxes
    assert first.url.startswith(f"http://8080-{box.sandbox_id}.localhost:")
    assert began_at <= first.started_at <= time.time()
    assert first.deadline_at == pytest.approx(box.end_at.timestamp())
    assert LIMITS.max_running_sec <= first.deadline_at - first.started_at < 70
    assert (await page_of(double, first)).text == "run\n"
    assert await runtime.find(first.owner) == first
    assert "this is run 1" in await runtime.tail_logs(first.owner, lines=10)

    end = await runtime.stop(first.owner)
    assert (end.reason, end.started_at) == ("stopped", first.started_at)
    assert end.snapshot is not None
    assert end.snapshot.size_bytes > 0
    assert double.boxes == []
    [kept] = double.snapshots.values()
    assert kept.processes == 0
    assert await runtime.stop(first.owner) == await runtime.find(first.owner) == end
    assert "this is run 1" in await runtime.tail_logs(first.owner, lines=10)
    assert await runtime.list_snapshots() == [end.snapshot]
    assert await runtime.find_snapshot(end.snapshot.id) == end.snapshot

    again = await start(runtime, replace(COUNTING, snapshot_id=end.snapshot.id))
    assert (await page_of(double, again)).text == "run\nrun\n"
    assert (await runtime.tail_logs(again.owner, lines=9))[0] == "this is run 2"
    assert len(await runtime.tail_logs(again.owner, lines=1)) == 1
    await runtime.forget(first.owner)
    assert await runtime.find(first.owner) is None
    assert [held.owner for held in await runtime.list_held("sandbox")] == [again.owner]
    with pytest.raises(E2bRefusedError):
        await runtime.delete_snapshot(end.snapshot.id)
    await runtime.stop(again.owner)
    for snapshot in await runtime.list_snapshots():
        await runtime.delete_snapshot(snapshot.id)
    await runtime.delete_snapshot(end.snapshot.id)
    assert (double.snapshots, await runtime.list_snapshots()) == ({}, [])


async def test_what_has_ended_is_not_started_again_and_what_runs_is_not_forgotten(
    runtime: E2bRuntime,
) -> None:
    running = await start(runtime)
    with pytest.raises(StillRunningError):
        await runtime.forget(running.owner)
    await runtime.stop(running.owner)
    with pytest.raises(AttemptEndedError):
        await start(runtime, owner=running.owner)
    with pytest.raises(NotRunningError):
        await runtime.sample(running.owner)
    await runtime.forget(running.owner)
    for call in (runtime.stop(running.owner), runtime.tail_logs(running.owner, lines=1)):
        with pytest.raises(NotHeldError):
            await call
    await runtime.forget(running.owner)


async def test_it_is_measured(double: E2bMachines, runtime: E2bRuntime) -> None:
    running = await start(runtime)
    sample = await runtime.sample(running.owner)
    assert sample.at == pytest.approx(time.time(), abs=5)
    assert sample.cpu_seconds == pytest.approx((sample.at - running.started_at) / 2, abs=0.01)
    assert (sample.memory_bytes, sample.storage_bytes > 0) == (100 << 20, True)
    assert sample.processes > 1
    double.is_measuring = False
    with pytest.raises(E2bNotMeasuredError):
        await runtime.sample(running.owner)


async def test_at_its_deadline_it_ends_and_its_files_are_kept(
    double: E2bMachines, runtime: E2bRuntime
) -> None:
    running = await start(runtime, limits=replace(LIMITS, max_running_sec=1))
    end = await ended(runtime, running.owner)
    assert (end.reason, end.ended_at) == ("timeout", running.deadline_at)
    assert 1 <= end.ended_at - running.started_at < 2.5
    assert end.snapshot is not None
    assert double.boxes == []
    assert "this is run 1" in await runtime.tail_logs(running.owner, lines=10)
    again = await start(runtime, replace(COUNTING, snapshot_id=end.snapshot.id))
    assert (await page_of(double, again)).text == "run\nrun\n"


async def test_its_deadline_can_be_moved(double: E2bMachines, runtime: E2bRuntime) -> None:
    running = await start(runtime)
    for seconds in (600, 5):
        moved = await runtime.extend(running.owner, deadline_at=time.time() + seconds)
        assert moved.deadline_at == pytest.approx(time.time() + seconds, abs=2)
        assert double.boxes[0].end_at.timestamp() == pytest.approx(moved.deadline_at)
        assert await runtime.find(running.owner) == moved


async def test_one_that_ends_by_itself_is_closed_with_its_code(
    double: E2bMachines, runtime: E2bRuntime
) -> None:
    program = shell(
        "(while [ ! -e go ]; do sleep 0.05; done; kill $$) & exec python3 -m http.server $PORT"
    )
    running = await start(runtime, program)
    await runtime.write_files(running.owner, FileChanges(written={"go": b""}))
    end = await ended(runtime, running.owner)
    assert (end.reason, end.exit_code) == ("exited", 143)
    assert end.snapshot is not None
    assert double.boxes == []


async def test_one_that_e2b_has_no_more_was_killed(
    double: E2bMachines, runtime: E2bRuntime
) -> None:
    running = await start(runtime)
    assert await runtime.find(running.owner) == running
    double.end(double.boxes[0].sandbox_id)
    end = await runtime.find(running.owner)
    assert isinstance(end, Ended)
    assert (end.reason, end.snapshot) == ("killed", None)
    assert end.snapshot_trouble == "E2B has it no more"
    assert running.started_at <= end.ended_at <= time.time()


async def test_processes_that_left_their_parent_end_with_it(
    double: E2bMachines, runtime: E2bRuntime
) -> None:
    program = shell("setsid sleep 1000 & exec python3 -m http.server $PORT")
    running = await start(runtime, program)
    await runtime.stop(running.owner)
    [kept] = double.snapshots.values()
    assert kept.processes == 0


async def test_its_log_is_followed_to_the_end(runtime: E2bRuntime) -> None:
    program = shell(
        "echo one; (while [ ! -e go ]; do sleep 0.05; done; printf 'two\\nthree') & "
        "exec python3 -m http.server $PORT"
    )
    running = await start(runtime, program)
    followed: list[str] = []
    seen: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def follow() -> None:
        async for line in runtime.follow_logs(running.owner, lines=5):
            followed.append(line)
            seen[line].set()

    following = asyncio.create_task(follow())
    async with asyncio.timeout(10):
        await seen["one"].wait()
        await runtime.write_files(running.owner, FileChanges(written={"go": b""}))
        await seen["two"].wait()
        await runtime.stop(running.owner)
        await following
    assert (followed[0], followed[-2:]) == ("one", ["two", "three"])


async def test_files_are_written_and_deleted_while_it_runs(
    double: E2bMachines, runtime: E2bRuntime
) -> None:
    running = await start(runtime, STATIC)
    changes = FileChanges(
        written={"a/ü b.html": b"new", 'o"dd\n%.html': b"odd"},
        deleted=frozenset({"index.html", "never/was.html"}),
    )
    await runtime.write_files(running.owner, changes)
    assert (await page_of(double, running, "/a/ü b.html")).content == b"new"
    assert (await page_of(double, running, "/o%22dd%0A%25.html")).content == b"odd"
    assert (await page_of(double, running, "/index.html")).status_code == 404
    await runtime.write_files(running.owner, FileChanges(deleted=frozenset({"a/ü b.html"})))
    assert (await page_of(double, running, "/a")).status_code == 404


async def test_no_path_leaves_the_workspace(double: E2bMachines, runtime: E2bRuntime) -> None:
    running = await start(runtime, shell("ln -s / out; exec python3 -m http.server $PORT"))
    for path in ("../escape", "/etc/passwd", "out/tmp/escape"):
        changes = FileChanges(written={"fine": b"", path: b""})
        with pytest.raises(UnsafePathError):
            await runtime.write_files(running.owner, changes)
    assert (await page_of(double, running, "/fine")).status_code == 404


async def test_a_repository_and_a_built_in_template_are_served(
    double: E2bMachines, runtime: E2bRuntime, git: GitServer
) -> None:
    url = git.add(
        "fine", {"Procfile": b"web: exec python3 -m http.server $PORT\n", "runs": b"cloned"}
    )
    cloned = await start(runtime, Program(Repository(url)))
    assert (await page_of(double, cloned)).text == "cloned"
    for name in ("static", "python-web"):
        running = await start(runtime, Program(Repository(f"builtin:{name}")))
        assert (await page_of(double, running, "/")).status_code == 200


async def test_its_environment_reaches_it(double: E2bMachines, runtime: E2bRuntime) -> None:
    program = replace(
        shell('echo "$GREETING" >runs; exec python3 -m http.server $PORT'),
        environment={"GREETING": "it's {me}"},
    )
    running = await start(runtime, program)
    assert (await page_of(double, running)).text == "it's {me}\n"


async def test_two_starts_at_once_start_one(double: E2bMachines, runtime: E2bRuntime) -> None:
    owner = new_owner()
    started = await asyncio.gather(*(start(runtime, owner=owner) for _ in range(5)))
    assert len(set(started)) == 1
    assert isinstance(started[0], Running)
    assert len(double.boxes) == double.calls["create"] == 1
