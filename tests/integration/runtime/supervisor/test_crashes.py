"""Servers and supervisors are killed; deadlines, ends and snapshots hold all the same."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import sandyard
from sandyard.runtime.local.host.processes import descendants, identity
from sandyard.runtime.local.records.run_folder import LocalRunFolder
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Ended, IsolationMode, RunId, Running, Starting
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import (
    LIMITS,
    OBEDIENT,
    STATIC,
    clear,
    end_all,
    inside,
    new_run_id,
    until_ended,
)

_ROOT = Path(__file__).parents[4]
_SOURCES = Path(sandyard.__file__).parent.parent


def killed_server(
    folder: Path,
    run_id: RunId,
    max_running_sec: float,
    isolation: IsolationMode = "bubblewrap",
    sources: Path = _SOURCES,
) -> str:
    """Start the program from another process and kill that; the program's URL."""
    arguments = [str(folder), run_id.attempt, str(max_running_sec), isolation]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.runtime.killable_server", *arguments],
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env=os.environ | {"PYTHONPATH": str(sources)},
        text=True,
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        server.send_signal(signal.SIGKILL)
    assert url
    return url


def supervisor_of(runtime: LocalRuntime, run_id: RunId) -> int:
    pid = runtime.folder_of(run_id).supervisor_pid()
    assert pid is not None
    return pid


async def test_a_program_that_will_not_end_is_ended_at_its_deadline(runtime: LocalRuntime) -> None:
    run_id = new_run_id()
    running = await runtime.start(run_id, OBEDIENT, LIMITS)
    stubborn = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    time.sleep(3600)
"""
    supervisor = supervisor_of(runtime, run_id)
    before = set(descendants(supervisor))
    await inside(runtime, running, stubborn)
    below = descendants(supervisor)
    assert set(below) - before
    deadline_at = time.time() + 1
    await runtime.extend(run_id, deadline_at=deadline_at)
    ended = await until_ended(runtime, run_id)
    assert ended.reason == "timeout"
    assert deadline_at <= ended.ended_at <= time.time()
    await until_gone(below)


async def test_a_supervisor_that_is_terminated_from_outside_was_not_stopped(
    runtime: LocalRuntime,
) -> None:
    running = await runtime.start(new_run_id(), OBEDIENT, LIMITS)
    os.kill(supervisor_of(runtime, running.run_id), signal.SIGTERM)
    ended = await until_ended(runtime, running.run_id)
    assert (ended.reason, ended.snapshot is None) == ("terminated", False)
    assert await runtime.stop(running.run_id) == ended


async def until_gone(pids: list[int]) -> None:
    async with asyncio.timeout(30):
        while any(identity(pid) for pid in pids):
            await asyncio.sleep(0.02)


async def test_find_has_no_effects_and_refresh_records_what_happened(
    runtime: LocalRuntime,
) -> None:
    running = await runtime.start(new_run_id(), OBEDIENT, LIMITS)
    supervisor = supervisor_of(runtime, running.run_id)
    os.kill(supervisor, signal.SIGKILL)
    await until_gone([supervisor])
    folder = runtime.folder_of(running.run_id)
    before = sorted(each.name for each in folder.path.iterdir())
    for _ in range(2):
        assert await runtime.find(running.run_id) == running, "as it was last recorded"
    assert sorted(each.name for each in folder.path.iterdir()) == before
    assert folder.ended() is None
    ended = await runtime.refresh(running.run_id)
    assert isinstance(ended, Ended)
    assert ended.reason == "killed"
    assert await runtime.find(running.run_id) == ended


@pytest.mark.parametrize("isolation", ["bubblewrap", "none"])
async def test_a_deadline_holds_when_the_server_is_gone(
    tmp_path: Path, isolation: IsolationMode
) -> None:
    run_id = new_run_id()
    folder = tmp_path / "runtime"
    killed_server(folder, run_id, 2, isolation)
    record = LocalRunFolder(folder / "held/sandbox/box" / run_id.attempt)
    supervisor = record.supervisor_pid()
    assert supervisor is not None
    below = descendants(supervisor)
    running = record.running()
    assert running is not None
    await until_gone([*below, supervisor])
    gone_at = time.time()
    runtime = LocalRuntime(folder, LocalOptions(isolation=isolation))
    ended = await until_ended(runtime, run_id)
    assert ended.reason == "timeout"
    assert running.deadline_at <= ended.ended_at <= gone_at, "as the supervisor recorded it"


async def test_a_new_server_adopts_what_runs(tmp_path: Path) -> None:
    run_id = new_run_id()
    port = int(killed_server(tmp_path / "runtime", run_id, 60))
    runtime = LocalRuntime(tmp_path / "runtime")
    (held,) = await runtime.list_runs("sandbox")
    assert isinstance(held, Running)
    assert (held.run_id, held.port) == (run_id, port)
    assert await inside(runtime, held, "print(6 * 7)") == "42"
    assert (await runtime.sample(run_id)).processes > 0
    assert await runtime.start(run_id, OBEDIENT, LIMITS) == held
    ended = await runtime.stop(run_id)
    assert ended.reason == "stopped"
    assert ended.snapshot is not None
    await runtime.forget(run_id)


async def test_an_upgrade_takes_nothing_from_what_runs(tmp_path: Path) -> None:
    sources, run_id = tmp_path / "sources", new_run_id()
    shutil.copytree(_SOURCES / "sandyard", sources / "sandyard")
    killed_server(tmp_path / "runtime", run_id, 60, sources=sources)
    shutil.rmtree(sources)
    runtime = LocalRuntime(tmp_path / "runtime")
    ended = await runtime.stop(run_id)
    assert (ended.reason, ended.snapshot_error) == ("stopped", None)
    assert ended.snapshot is not None
    await runtime.forget(run_id)


@pytest.mark.parametrize("isolation", ["bubblewrap", "none"])
async def test_an_end_without_the_workspace_says_so_in_words(
    tmp_path: Path, isolation: IsolationMode
) -> None:
    """A backup has the record of what runs, not its files."""
    runtime = LocalRuntime(tmp_path / "runtime", LocalOptions(isolation=isolation))
    run_id = new_run_id()
    await runtime.start(run_id, OBEDIENT, LIMITS)
    supervisor = supervisor_of(runtime, run_id)
    below = descendants(supervisor)
    os.kill(supervisor, signal.SIGKILL)
    await until_gone(below)
    folder = runtime.folder_of(run_id)
    shutil.rmtree(folder.workspace)
    folder.image.unlink(missing_ok=True)
    ended = await until_ended(runtime, run_id)
    assert (ended.reason, ended.snapshot) == ("killed", None)
    assert ended.snapshot_error == "those since its last stop are not there"
    await end_all(runtime)


@pytest.mark.parametrize("isolation", ["bubblewrap", "none"])
async def test_a_killed_supervisor_takes_its_program_along(
    tmp_path: Path, isolation: IsolationMode
) -> None:
    runtime = LocalRuntime(tmp_path / "runtime", LocalOptions(isolation=isolation))
    run_id = new_run_id()
    running = await runtime.start(run_id, OBEDIENT, LIMITS)
    await inside(
        runtime, running, "open('kept', 'w').write('yes'); import os; os.system('sleep 50 &')"
    )
    supervisor = supervisor_of(runtime, run_id)
    below = descendants(supervisor)
    record = runtime.folder_of(run_id)
    async with asyncio.timeout(30):
        while (seen_at := record.last_heartbeat_at()) < running.started_at + 0.5:
            await asyncio.sleep(0.02)
    killed_at = time.time()
    os.kill(supervisor, signal.SIGKILL)
    ended = await until_ended(runtime, run_id)
    assert ended.reason == "killed"
    assert ended.started_at == running.started_at
    assert seen_at <= ended.ended_at <= killed_at
    await until_gone(below)
    assert ended.snapshot is not None
    assert await runtime.stop(run_id) == ended
    again = new_run_id()
    program = replace(OBEDIENT, snapshot_id=ended.snapshot.id)
    restored = await runtime.start(again, program, LIMITS)
    assert await inside(runtime, restored, "print(open('kept').read())") == "yes"
    await end_all(runtime)


async def test_a_supervisor_that_is_killed_while_it_packs_leaves_the_true_end(
    runtime: LocalRuntime,
) -> None:
    run_id = new_run_id()
    running = await runtime.start(run_id, OBEDIENT, LIMITS)
    await inside(runtime, running, "import os; open('large', 'wb').write(os.urandom(120 << 20))")
    supervisor = supervisor_of(runtime, run_id)
    stopping = asyncio.create_task(runtime.stop(run_id))
    record = runtime.folder_of(run_id)
    while (ending := record.ended(final=False)) is None:
        await asyncio.sleep(0.005)
    os.kill(supervisor, signal.SIGKILL)
    ended = await stopping
    assert (ended.reason, ended.ended_at) == ("stopped", ending.ended_at)
    assert ended.snapshot is not None
    assert len(await runtime.list_snapshots()) == 1


async def test_what_a_killed_supervisor_was_starting_is_ended(runtime: LocalRuntime) -> None:
    """As bubblewrap, which holds the files of the machine as long as it is there."""
    run_id = new_run_id()
    await runtime.start(run_id, STATIC, LIMITS)
    with subprocess.Popen(["sleep", "600"], cwd=runtime.folder_of(run_id).path) as starting:
        os.kill(supervisor_of(runtime, run_id), signal.SIGKILL)
        await until_ended(runtime, run_id)
        assert starting.wait(10) == -signal.SIGKILL


async def test_another_process_with_the_same_pid_is_not_taken_for_the_supervisor(
    runtime: LocalRuntime,
) -> None:
    run_id = new_run_id()
    await runtime.start(run_id, STATIC, LIMITS)
    supervisor = supervisor_of(runtime, run_id)
    record = runtime.folder_of(run_id)
    os.kill(supervisor, signal.SIGKILL)
    with subprocess.Popen(["sleep", "60"]) as bystander:
        record.write("supervisor", {"pid": bystander.pid, "identity": f"{time.time()}/1"})
        ended = await until_ended(runtime, run_id)
        assert ended.reason == "killed"
        assert bystander.poll() is None
        bystander.kill()


async def test_a_start_whose_server_died_is_closed(tmp_path: Path) -> None:
    """The server is killed at moments all over the start; nothing is left in between."""
    folder = tmp_path / "runtime"
    runtime = LocalRuntime(folder)
    await clear(runtime, (await runtime.start(new_run_id(), OBEDIENT, LIMITS)).run_id)
    for wait_sec in (0.2, 0.3, 0.4, 0.5):
        run_id = new_run_id()
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.support.runtime.killable_server"),
                *(str(folder), run_id.attempt, "60", "bubblewrap"),
            ],
            stdout=subprocess.PIPE,
            cwd=_ROOT,
        )
        await asyncio.sleep(wait_sec)
        server.kill()
        server.communicate()
        async with asyncio.timeout(60):
            while isinstance(held := await runtime.refresh(run_id), Starting):
                await asyncio.sleep(0.02)
        if isinstance(held, Running):
            assert await runtime.fetch(held) == b"at your service"
        await clear(runtime, run_id)
    assert await runtime.list_runs("sandbox") == []


async def test_nothing_of_ours_is_left_running(runtime: LocalRuntime, tmp_path: Path) -> None:
    run_ids = [new_run_id() for _ in range(3)]
    await asyncio.gather(*(runtime.start(run_id, OBEDIENT, LIMITS) for run_id in run_ids))
    await asyncio.gather(*map(runtime.stop, run_ids))
    await asyncio.gather(*map(runtime.forget, run_ids))
    left = [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if any(str(tmp_path) in word for word in process.info["cmdline"] or [])
    ]
    assert left == []
