"""Servers and supervisors are killed; deadlines, ends and snapshots hold all the same."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from sandyard.platform.runtime.local.processes import descendants, identity
from sandyard.platform.runtime.local.records import Folder, Isolation
from sandyard.platform.runtime.local.runtime import LocalRuntime
from sandyard.platform.runtime.local.specs import LocalPolicy
from sandyard.platform.runtime.model import Ended, Owner, Running, Starting
from tests.integration.runtime.programs import (
    LIMITS,
    OBEDIENT,
    STATIC,
    clear,
    end_all,
    fetch,
    inside,
    new_owner,
    until_ended,
)

_ROOT = Path(__file__).parents[3]


def killed_server(
    folder: Path, owner: Owner, max_running_sec: float, isolation: Isolation = "bubblewrap"
) -> str:
    """Start the program from another process and kill that; the program's URL."""
    arguments = [str(folder), owner.attempt, str(max_running_sec), isolation]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.integration.runtime.server", *arguments],
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        text=True,
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        server.send_signal(signal.SIGKILL)
    assert url
    return url


def supervisor_of(runtime: LocalRuntime, owner: Owner) -> int:
    pid = Folder(runtime.workspace_of(owner).parent).supervisor_pid()
    assert pid is not None
    return pid


async def test_a_deadline_holds_to_the_second(runtime: LocalRuntime) -> None:
    owner = new_owner()
    running = await runtime.start(owner, STATIC, replace(LIMITS, max_running_sec=1.5))
    ended = await until_ended(runtime, owner)
    assert ended.reason == "timeout"
    assert 0 <= ended.ended_at - running.deadline_at < 1
    assert ended.snapshot is not None


async def test_a_program_that_will_not_end_is_ended_at_its_deadline(runtime: LocalRuntime) -> None:
    owner = new_owner()
    running = await runtime.start(owner, OBEDIENT, replace(LIMITS, max_running_sec=4))
    stubborn = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    time.sleep(60)
"""
    supervisor = supervisor_of(runtime, owner)
    before = len(descendants(supervisor))
    await inside(running, stubborn)
    below = descendants(supervisor)
    assert len(below) > before
    ended = await until_ended(runtime, owner)
    assert ended.reason == "timeout"
    assert ended.ended_at - running.deadline_at < 1
    assert [pid for pid in below if identity(pid)] == []


async def test_a_deadline_can_be_moved(runtime: LocalRuntime) -> None:
    owner = new_owner()
    running = await runtime.start(owner, STATIC, replace(LIMITS, max_running_sec=3))
    later = running.started_at + 5
    moved = await runtime.extend(owner, deadline_at=later)
    assert moved == await runtime.find(owner) == replace(running, deadline_at=later)
    ended = await until_ended(runtime, owner)
    assert 0 <= ended.ended_at - later < 1


@pytest.mark.parametrize("isolation", ["bubblewrap", "none"])
async def test_a_deadline_holds_when_the_server_is_gone(
    tmp_path: Path, isolation: Isolation
) -> None:
    owner = new_owner()
    folder = tmp_path / "runtime"
    killed_server(folder, owner, 2, isolation)
    record = Folder(folder / "held/sandbox/box" / owner.attempt)
    supervisor = record.supervisor_pid()
    assert supervisor is not None
    below = descendants(supervisor)
    running = record.running()
    assert running is not None
    await asyncio.sleep(running.deadline_at + 1.2 - time.time())
    assert [pid for pid in below if identity(pid)] == []
    ended = await LocalRuntime(folder, LocalPolicy(isolation=isolation)).find(owner)
    assert isinstance(ended, Ended)
    assert ended.reason == "timeout"
    assert 0 <= ended.ended_at - running.deadline_at < 1


async def test_a_new_server_adopts_what_runs(tmp_path: Path) -> None:
    owner = new_owner()
    url = killed_server(tmp_path / "runtime", owner, 60)
    runtime = LocalRuntime(tmp_path / "runtime")
    (held,) = await runtime.list_held("sandbox")
    assert isinstance(held, Running)
    assert (held.owner, held.url) == (owner, url)
    assert await inside(held, "print(6 * 7)") == "42"
    assert (await runtime.sample(owner)).processes > 0
    assert await runtime.start(owner, OBEDIENT, LIMITS) == held
    ended = await runtime.stop(owner)
    assert ended.reason == "stopped"
    assert ended.snapshot is not None
    await runtime.forget(owner)


@pytest.mark.parametrize("isolation", ["bubblewrap", "none"])
async def test_a_killed_supervisor_takes_its_program_along(
    tmp_path: Path, isolation: Isolation
) -> None:
    runtime = LocalRuntime(tmp_path / "runtime", LocalPolicy(isolation=isolation))
    owner = new_owner()
    running = await runtime.start(owner, OBEDIENT, LIMITS)
    await inside(running, "open('kept', 'w').write('yes'); import os; os.system('sleep 50 &')")
    supervisor = supervisor_of(runtime, owner)
    below = descendants(supervisor)
    await asyncio.sleep(1.2)
    killed_at = time.time()
    os.kill(supervisor, signal.SIGKILL)
    ended = await until_ended(runtime, owner)
    assert ended.reason == "killed"
    assert ended.started_at == running.started_at
    assert killed_at - 1.5 < ended.ended_at <= killed_at
    assert [pid for pid in below if identity(pid)] == []
    assert ended.snapshot is not None
    assert await runtime.stop(owner) == ended
    again = new_owner()
    program = replace(OBEDIENT, snapshot_id=ended.snapshot.id)
    restored = await runtime.start(again, program, LIMITS)
    assert await inside(restored, "print(open('kept').read())") == "yes"
    await end_all(runtime)


async def test_a_supervisor_that_is_killed_while_it_packs_leaves_the_true_end(
    runtime: LocalRuntime,
) -> None:
    owner = new_owner()
    running = await runtime.start(owner, OBEDIENT, LIMITS)
    await inside(running, "import os; open('large', 'wb').write(os.urandom(120 << 20))")
    supervisor = supervisor_of(runtime, owner)
    stopping = asyncio.create_task(runtime.stop(owner))
    record = Folder(runtime.workspace_of(owner).parent)
    while (ending := record.ended(final=False)) is None:
        await asyncio.sleep(0.005)
    os.kill(supervisor, signal.SIGKILL)
    ended = await stopping
    assert (ended.reason, ended.ended_at) == ("stopped", ending.ended_at)
    assert ended.snapshot is not None
    assert len(await runtime.list_snapshots()) == 1


async def test_another_process_with_the_same_pid_is_not_taken_for_the_supervisor(
    runtime: LocalRuntime,
) -> None:
    owner = new_owner()
    await runtime.start(owner, STATIC, LIMITS)
    supervisor = supervisor_of(runtime, owner)
    record = Folder(runtime.workspace_of(owner).parent)
    os.kill(supervisor, signal.SIGKILL)
    with subprocess.Popen(["sleep", "60"]) as bystander:
        record.write("supervisor", {"pid": bystander.pid, "identity": f"{time.time()}/1"})
        ended = await until_ended(runtime, owner)
        assert ended.reason == "killed"
        assert bystander.poll() is None
        bystander.kill()


async def test_a_start_whose_server_died_is_closed(tmp_path: Path) -> None:
    """The server is killed at moments all over the start; nothing is left in between."""
    folder = tmp_path / "runtime"
    runtime = LocalRuntime(folder)
    await clear(runtime, (await runtime.start(new_owner(), OBEDIENT, LIMITS)).owner)
    for wait_sec in (0.2, 0.3, 0.4, 0.5):
        owner = new_owner()
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.integration.runtime.server"),
                *(str(folder), owner.attempt, "60", "bubblewrap"),
            ],
            stdout=subprocess.PIPE,
            cwd=_ROOT,
        )
        await asyncio.sleep(wait_sec)
        server.kill()
        server.communicate()
        async with asyncio.timeout(10):
            while isinstance(held := await runtime.find(owner), Starting):
                await asyncio.sleep(0.02)
        if isinstance(held, Running):
            assert await fetch(held.url) == b"at your service"
        await clear(runtime, owner)
    assert await runtime.list_held("sandbox") == []


async def test_nothing_of_ours_is_left_running(runtime: LocalRuntime, tmp_path: Path) -> None:
    owners = [new_owner() for _ in range(3)]
    await asyncio.gather(*(runtime.start(owner, OBEDIENT, LIMITS) for owner in owners))
    await asyncio.gather(*map(runtime.stop, owners))
    await asyncio.gather(*map(runtime.forget, owners))
    left = [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if any(str(tmp_path) in word for word in process.info["cmdline"] or [])
    ]
    assert left == []
