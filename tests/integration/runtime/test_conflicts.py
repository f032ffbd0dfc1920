"""What a sandbox's own programs and files prevent is a conflict, and never told as an outage."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.runtime.errors import NotPackedError, OperationFailedError
from sandyard.runtime.local.server.options import LocalOptions
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import end_all, inside, started

_KILL_AGENTS = """
import os, signal, time
killed = 0
while not killed:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if "sandyard-agent" in open(f"/proc/{pid}/cmdline").read():
            os.kill(int(pid), signal.SIGKILL)
            killed += 1
    time.sleep(0.01)
"""
_NEST = """
import os
for _ in range(2000):
    os.mkdir("deep")
    os.chdir("deep")
os.chdir("/workspace")
"""


async def test_work_that_a_program_of_the_sandbox_ends(runtime: LocalRuntime) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(10240)
            await asyncio.sleep(0.01)

    async with started(runtime) as running:
        session = await runtime.session(running.run_id)
        killing = asyncio.ensure_future(inside(runtime, running, _KILL_AGENTS))
        with pytest.raises(OperationFailedError):
            await session.files.write_tar("/workspace", endless())
        await killing


@pytest.mark.torture  # to remove them takes a minute
async def test_folders_that_are_nested_too_deeply(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        await inside(runtime, running, _NEST)
        session = await runtime.session(running.run_id)
        with pytest.raises(OperationFailedError):
            await session.files.remove("/workspace/deep")


async def test_files_that_take_too_long_to_pack(tmp_path: Path) -> None:
    options = LocalOptions(snapshot_timeout_sec=0.001)
    runtime = LocalRuntime(tmp_path / "runtime", options)
    try:
        async with started(runtime) as running:
            with pytest.raises(NotPackedError):
                await runtime.save_archive(running.run_id, "one")
    finally:
        await end_all(runtime)
