"""A machine with a kernel of its own. `make torture` runs the contract of all machines over it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.runtime.local.server.machines import LocalMachines
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Ended, Limits, MachineSpec, RunId
from sandyard.runtime.sessions.model import Command
from sandyard.runtime.sessions.ports import Session
from tests.contract.runtime.sessions.test_ports import request, serve_echo
from tests.support.runtime.sessions import pieces, read_all, shell

RUN = RunId("sandbox", "box", "1")
LIMITS = Limits(
    cpu=1, memory_bytes=192 << 20, processes=64, storage_bytes=64 << 20, max_running_sec=600
)
TAKE_MEMORY = "python3 -c 'b = bytes([1]) * (400 << 20); import time; time.sleep(60)'"


@pytest.fixture
async def machines(tmp_path: Path) -> AsyncIterator[LocalMachines]:
    """The operator's floor is bubblewrap; the machine asks for more."""
    machines = LocalMachines(tmp_path / "runtime", LocalOptions(), SystemClock())
    await machines.create(RUN, MachineSpec(LIMITS, 600, isolation="gvisor"))
    yield machines
    await machines.stop(RUN)
    await until_ended(machines)


async def until_ended(machines: LocalMachines) -> Ended:
    async with asyncio.timeout(30):
        while not isinstance(state := await machines.refresh(RUN), Ended):
            await asyncio.sleep(0.02)
    return state


async def test_it_is_a_machine_of_its_own_size_and_its_memory_is_held(
    machines: LocalMachines,
) -> None:
    """One machine for all: its start takes about a second."""
    session = await machines.session(RUN)
    size_kb = LIMITS.memory_bytes // 1024
    assert f"MemTotal:         {size_kb} kB" in (await shell(session, "cat /proc/meminfo")).decode()
    assert await shell(session, "nproc") == b"1\n"
    assert Path("/proc/version").read_bytes() != await shell(session, "cat /proc/version")
    await files_are_seen_from_both_sides(session)
    await commands_run_as_user_and_as_root(session)
    _, port = await serve_echo(session)
    connection = await session.ports.connect(port)
    connection.writer.write(request("localhost", b"hello"))
    async with asyncio.timeout(20):
        assert (await connection.reader.read()).endswith(b"\r\n\r\nhello")
    connection.writer.close()
    assert 1 << 20 < (await machines.sample(RUN)).memory_bytes < LIMITS.memory_bytes
    await session.processes.start(Command(("sh", "-c", TAKE_MEMORY)))
    assert (await until_ended(machines)).reason == "out_of_memory"


async def files_are_seen_from_both_sides(session: Session) -> None:
    await session.files.write("given", pieces(b"from outside"))
    assert await shell(session, "cat given; echo inside > /var/tmp/made") == b"from outside"
    assert await read_all(session, "/var/tmp/made") == b"inside\n"  # noqa: S108 - inside
    await session.files.write("given", pieces(b"changed"))
    assert await shell(session, "cat given") == b"changed"


async def commands_run_as_user_and_as_root(session: Session) -> None:
    assert await shell(session, "id -u; stat -c %u /usr .") == b"1000\n0\n1000\n"
    process = await session.processes.start(
        Command(("sh", "-c", "id -u > /usr/share/who"), user="root")
    )
    assert (await session.processes.wait(process.id, timeout_sec=20)).exit_code == 0
    assert await read_all(session, "/usr/share/who") == b"0\n"
