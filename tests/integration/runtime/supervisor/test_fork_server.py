"""Supervisors come from a fork server, and depend on it in nothing once they are there."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil

from sandyard.runtime.local.supervisor.fork_server import SUPERVISOR
from sandyard.runtime.model import RunId
from tests.integration.runtime.supervisor.test_crashes import killed_server, supervisor_of
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, OBEDIENT, new_run_id


def fork_server_of(runtime: LocalRuntime, run_id: RunId) -> psutil.Process:
    parent = psutil.Process(supervisor_of(runtime, run_id)).parent()
    assert parent is not None
    assert "sandyard.runtime.local.supervisor.fork_server" in parent.cmdline()
    return parent


async def test_a_supervisor_has_a_name_and_a_session_of_its_own(runtime: LocalRuntime) -> None:
    run_id = new_run_id()
    await runtime.start(run_id, OBEDIENT, LIMITS)
    supervisor = supervisor_of(runtime, run_id)
    words = [word for word in psutil.Process(supervisor).cmdline() if word]
    folder = str(runtime.folder_of(run_id).path)
    assert words == [sys.executable, "-S", "-m", SUPERVISOR, folder]
    assert os.getsid(supervisor) == supervisor
    assert fork_server_of(runtime, run_id).environ().keys() <= {"PATH", "PYTHONPATH", "LC_CTYPE"}


async def test_a_killed_fork_server_harms_nobody(runtime: LocalRuntime) -> None:
    first, second, third = (new_run_id() for _ in range(3))
    running = await runtime.start(first, OBEDIENT, LIMITS)
    killed = fork_server_of(runtime, first)
    killed.send_signal(signal.SIGKILL)
    psutil.wait_procs([killed], timeout=10)
    assert await runtime.fetch(running) == b"at your service"
    for run_id in (second, third):
        again = await runtime.start(run_id, OBEDIENT, LIMITS)
        assert await runtime.fetch(again) == b"at your service"
    assert fork_server_of(runtime, third) != killed


async def test_a_fork_server_ends_with_its_server(tmp_path: Path) -> None:
    run_id = new_run_id()
    folder = tmp_path / "runtime"
    killed_server(folder, run_id, 60)
    runtime = LocalRuntime(folder)
    supervisor = psutil.Process(supervisor_of(runtime, run_id))
    async with asyncio.timeout(20):
        while _is_forked(supervisor):
            await asyncio.sleep(0.02)
    assert supervisor.is_running()
    await runtime.stop(run_id)


def _is_forked(process: psutil.Process) -> bool:
    parent = process.parent()
    return parent is not None and any("fork_server" in word for word in parent.cmdline())
