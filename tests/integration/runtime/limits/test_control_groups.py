"""Limits that the kernel holds, on real control groups below a folder that the tester delegates.

`SANDYARD_TEST_CGROUP_ROOT` names it: version 2, with the controllers cpu, memory and pids, and no
process in it. `make test-cgroups` runs these tests; no other control group is touched.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.runtime.local.limits.cgroups import Cgroup
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Running
from tests.integration.runtime.attacks.memory import EPOLL
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import (
    LIMITS,
    end_all,
    inside,
    send,
    started,
    until_ended,
)

pytestmark = pytest.mark.cgroups
_ROOT = os.environ.get("SANDYARD_TEST_CGROUP_ROOT", "")

_CHAIN = """
import mmap, os, time
held = []
while True:
    if os.fork():
        os._exit(0)
    page = mmap.mmap(-1, 8 << 20)
    page.write(bytes(8 << 20))
    held.append(page)
"""
"""Each process lives shorter than the pause between two counts of a watchdog."""


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "runtime", LocalOptions(cgroup_root=Path(_ROOT)))
    yield runtime
    await end_all(runtime)


def group_of(runtime: LocalRuntime, running: Running) -> Path:
    return Cgroup(Path(_ROOT), runtime.folder_of(running.run_id).path).path


@pytest.mark.parametrize("attack", [_CHAIN, EPOLL], ids=["chain-of-processes", "epoll-watches"])
async def test_what_a_count_does_not_find_ends_the_sandbox(
    runtime: LocalRuntime, attack: str
) -> None:
    async with started(runtime) as running:
        limit = (group_of(runtime, running) / "memory.max").read_text()
        assert int(limit) == LIMITS.memory_bytes
        await send(runtime, running, f"import os\nif os.fork() == 0:\n    exec({attack!r})")
        assert (await until_ended(runtime, running.run_id)).reason == "out_of_memory"


async def test_files_in_memory_count(runtime: LocalRuntime) -> None:
    code = """
for place in ("/tmp/x", "/dev/shm/x"):
    with open(place, "wb") as file:
        for _ in range(127):
            file.write(bytes(1 << 20))
"""
    async with started(runtime) as running:
        await send(runtime, running, code)
        assert (await until_ended(runtime, running.run_id)).reason == "out_of_memory"


async def test_processes_are_refused_above_the_limit(runtime: LocalRuntime) -> None:
    code = """
import os, time
made = 0
try:
    for made in range(1000):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
except BlockingIOError:
    print(made)
"""
    async with started(runtime) as running:
        assert 4 <= int(await inside(runtime, running, code)) <= LIMITS.processes


async def test_all_of_a_sandbox_is_in_its_group_and_nothing_else(runtime: LocalRuntime) -> None:
    async with started(runtime) as running:
        group = group_of(runtime, running)
        members = {int(pid) for pid in (group / "cgroup.procs").read_text().split()}
        supervisor = runtime.folder_of(running.run_id).supervisor_pid()
        names = {Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0] for pid in members}
        assert supervisor not in members
        assert "sandyard-agent" in names
        assert (group / "cpu.max").read_text() == "100000 100000\n"
        sample = await runtime.sample(running.run_id)
        assert 0 < sample.memory_bytes < LIMITS.memory_bytes
    assert not group.exists()


async def test_a_group_goes_with_its_sandbox_after_its_supervisor_was_killed(
    runtime: LocalRuntime,
) -> None:
    async with started(runtime) as running:
        group = group_of(runtime, running)
        supervisor = runtime.folder_of(running.run_id).supervisor_pid()
        assert supervisor is not None
        os.kill(supervisor, 9)
        assert (await until_ended(runtime, running.run_id)).reason == "killed"
        assert not group.exists()
