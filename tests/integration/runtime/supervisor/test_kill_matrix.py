"""Whoever is killed, and whenever: what runs is found again or recorded as ended, once."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from sandyard.kit.errors import SandyardError, UnavailableError
from sandyard.runtime.errors import NotRunningError
from sandyard.runtime.local.agent.agent import NAME
from sandyard.runtime.model import Ended, RunId, Running
from tests.integration.runtime.storage.test_volumes import until_no_device_is_left
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import (
    LIMITS,
    OBEDIENT,
    clear,
    inside,
    new_run_id,
    until_ended,
)

pytestmark = pytest.mark.torture

_ROOT = Path(__file__).parents[4]
_MOMENTS_MS = (0, 20, 40, 60, 80, 100, 130, 160, 200, 250, 300, 400)
_WRITE = "import os; open('large', 'wb').write(os.urandom(20 << 20));"
_SUM = "import hashlib; print(hashlib.sha256(open('large', 'rb').read()).hexdigest())"
Victim = Callable[[psutil.Process], list[psutil.Process]]


def supervisor(process: psutil.Process) -> list[psutil.Process]:
    return [process]


def agents(process: psutil.Process) -> list[psutil.Process]:
    """And the egress proxy, which has the words of the supervisor."""
    words = process.cmdline()
    children = [(each, each.cmdline()) for each in process.children()]
    return [each for each, own in children if own == words or own[:1] == [NAME]]


def bubblewrap(process: psutil.Process) -> list[psutil.Process]:
    return [each for each in process.children() if each.name() == "bwrap"]


def first_inside(process: psutil.Process) -> list[psutil.Process]:
    return [each for wrap in bubblewrap(process) for each in wrap.children(recursive=True)]


VICTIMS: tuple[Victim, ...] = (supervisor, agents, bubblewrap, first_inside)


def kill(runtime: LocalRuntime, run_id: RunId, victim: Victim) -> None:
    with suppress(psutil.Error):
        pid = runtime.folder_of(run_id).supervisor_pid()
        killed = [] if pid is None else victim(psutil.Process(pid))
        for process in killed:
            process.send_signal(signal.SIGKILL)
        psutil.wait_procs(killed, timeout=10)


async def settled(runtime: LocalRuntime, run_id: RunId) -> Ended | bytes | None:
    """What its program answers, or how it ended: one of them is true, and stays so."""
    async with asyncio.timeout(60):
        while True:
            match await runtime.refresh(run_id):
                case Running() as running:
                    with suppress(NotRunningError, UnavailableError):  # it is being noticed
                        return await runtime.fetch(running)
                case Ended() | None as found:
                    return found
            await asyncio.sleep(0.02)


async def nothing_is_left(runtime: LocalRuntime, folder: Path, run_id: RunId) -> None:
    await clear(runtime, run_id)
    await until_no_device_is_left(folder)
    async with asyncio.timeout(20):
        while _named(str(folder)):
            await asyncio.sleep(0.02)


def _named(folder: str) -> list[list[str]]:
    listed = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
    return [words for words in listed if any(word.startswith(folder) for word in words)]


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("after_ms", _MOMENTS_MS)
async def test_during_a_start(
    runtime: LocalRuntime, tmp_path: Path, victim: Victim, after_ms: int
) -> None:
    run_id = new_run_id()
    starting = asyncio.create_task(runtime.start(run_id, OBEDIENT, LIMITS))
    await asyncio.sleep(after_ms / 1000)
    kill(runtime, run_id, victim)
    with suppress(SandyardError):
        await starting
    found = await settled(runtime, run_id)
    assert found == b"at your service" or isinstance(found, Ended | None)
    assert await settled(runtime, run_id) == found, "an end is told once, and for good"
    await nothing_is_left(runtime, tmp_path, run_id)


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("after_ms", _MOMENTS_MS)
async def test_during_a_stop(
    runtime: LocalRuntime, tmp_path: Path, victim: Victim, after_ms: int
) -> None:
    run_id = new_run_id()
    running = await runtime.start(run_id, OBEDIENT, LIMITS)
    written = await inside(runtime, running, _WRITE + _SUM)
    stopping = asyncio.create_task(runtime.stop(run_id))
    await asyncio.sleep(after_ms / 1000)
    kill(runtime, run_id, victim)
    ended = await stopping
    assert ended.started_at == running.started_at
    assert ended.snapshot is not None, ended.snapshot_error
    assert await until_ended(runtime, run_id) == ended
    assert len(await runtime.list_snapshots()) == 1
    await nothing_is_left(runtime, tmp_path, run_id)
    again = new_run_id()
    restored = await runtime.start(again, replace(OBEDIENT, snapshot_id=ended.snapshot.id), LIMITS)
    assert await inside(runtime, restored, _SUM) == written


@pytest.mark.parametrize("victim", VICTIMS)
async def test_while_it_runs(runtime: LocalRuntime, tmp_path: Path, victim: Victim) -> None:
    """What is killed inside or around the machine ends it, once; an agent is replaced."""
    run_id = new_run_id()
    running = await runtime.start(run_id, OBEDIENT, LIMITS)
    kill(runtime, run_id, victim)
    if victim is agents:
        assert await settled(runtime, run_id) == b"at your service"
    else:
        ended = await until_ended(runtime, run_id)
        assert ended.started_at == running.started_at
        assert ended.reason in ("killed", "exited")
        assert ended.snapshot is not None, ended.snapshot_error
    await nothing_is_left(runtime, tmp_path, run_id)


@pytest.mark.parametrize("after_ms", [*range(100, 900, 50)])
async def test_a_server_during_a_start(
    runtime: LocalRuntime, tmp_path: Path, after_ms: int
) -> None:
    run_id = new_run_id()
    words = [sys.executable, "-m", "tests.support.runtime.killable_server"]
    arguments = [str(tmp_path / "runtime"), run_id.attempt, "60", "bubblewrap"]
    with subprocess.Popen([*words, *arguments], stdout=subprocess.PIPE, cwd=_ROOT) as server:
        await asyncio.sleep(after_ms / 1000)
        server.kill()
    found = await settled(runtime, run_id)
    assert found == b"at your service" or isinstance(found, Ended | None)
    await nothing_is_left(runtime, tmp_path, run_id)
