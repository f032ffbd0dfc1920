"""Each implementation of sessions with a running machine, so that one suite runs over all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from sandyard.kit.clock import SystemClock
from sandyard.runtime.kubernetes.manifest import name_of
from sandyard.runtime.local.server.machines import LocalMachines
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Ended, Limits, MachineSpec, RunId
from sandyard.runtime.sessions.model import Command, Process
from sandyard.runtime.sessions.ports import Session
from tests.fakes.session import FakeMachine
from tests.integration.runtime_e2b.runtimes import machines_at, sandbox_id_of
from tests.support.e2b.machine import MachineOptions
from tests.support.e2b.machines import E2bMachines, e2b_machines
from tests.support.kubernetes.cluster import AnyCluster, any_cluster
from tests.support.runtime.runtimes import LOCAL_OPTIONS

SESSIONS = ("fake", "local", "e2b", "kubernetes")
STORAGE_BYTES = 128 * 1024 * 1024
"""What a machine of these tests may store."""
_LIMITS = Limits(
    cpu=1,
    memory_bytes=256 << 20,
    processes=64,
    storage_bytes=STORAGE_BYTES,
    max_running_sec=600,
)


class SessionHost(Protocol):
    """A running machine with an empty workspace."""

    async def connect(self) -> Session:
        """What a server of its own would use; all of them see the same machine."""
        ...

    async def end(self) -> None:
        """Kill the machine, with all that runs there."""
        ...


class LocalSessionHost:
    def __init__(self, folder: Path, run_id: RunId, options: LocalOptions) -> None:
        self._folder = folder
        self._run_id = run_id
        self._options = options

    async def connect(self) -> Session:
        return await LocalMachines(self._folder, self._options, SystemClock()).session(self._run_id)

    async def end(self) -> None:
        machines = LocalMachines(self._folder, self._options, SystemClock())
        await machines.stop(self._run_id)
        async with asyncio.timeout(20):
            while not isinstance(await machines.refresh(self._run_id), Ended | None):
                await asyncio.sleep(0.01)


class E2bSessionHost:
    def __init__(self, double: E2bMachines, folder: Path, run_id: RunId) -> None:
        self._double = double
        self._folder = folder
        self._run_id = run_id

    async def connect(self) -> Session:
        return await machines_at(self._double, self._folder).session(self._run_id)

    async def end(self) -> None:
        self._double.end(sandbox_id_of(self._double, self._run_id))


class KubernetesSessionHost:
    def __init__(self, found: AnyCluster, run_id: RunId) -> None:
        self._cluster = found
        self._run_id = run_id

    async def connect(self) -> Session:
        return await self._cluster.machines()[0].session(self._run_id)

    async def end(self) -> None:
        await self._cluster.kill(name_of(self._run_id))


@asynccontextmanager
async def session_host(name: str, folder: Path) -> AsyncIterator[SessionHost]:
    """The machine of this implementation; nothing is left running."""
    if name == "fake":
        machine = FakeMachine(folder / "workspace", storage_bytes=STORAGE_BYTES)
        try:
            yield machine
        finally:
            await machine.end()
        return
    run_id = RunId("sandbox", "box", "1")
    spec = MachineSpec(_LIMITS, lifetime_sec=600)
    if name in LOCAL_OPTIONS:
        local_options = LOCAL_OPTIONS[name]
        await LocalMachines(folder / "runtime", local_options, SystemClock()).create(run_id, spec)
        host = LocalSessionHost(folder / "runtime", run_id, local_options)
        try:
            yield host
        finally:
            await host.end()
        return
    if name == "kubernetes":
        async with any_cluster(folder) as found:
            await found.machines()[0].create(run_id, spec)
            yield KubernetesSessionHost(found, run_id)
        return
    (folder / "machines").mkdir()
    options = MachineOptions(storage_bytes=STORAGE_BYTES)
    async with e2b_machines(folder / "machines", options) as double:
        await machines_at(double, folder / "runtime").create(run_id, spec)
        yield E2bSessionHost(double, folder / "runtime", run_id)


async def pieces(*content: bytes) -> AsyncIterator[bytes]:
    for piece in content:
        yield piece


async def read_all(session: Session, path: str) -> bytes:
    return b"".join([piece async for piece in session.files.read(path)])


async def shell(session: Session, script: str) -> bytes:
    """Run it in the workspace and give what it wrote; it must succeed."""
    process = await session.processes.start(Command(("sh", "-c", script)))
    written = await output_of(session, process)
    ended = await session.processes.wait(process.id)
    assert ended.exit_code == 0, written
    return written


async def output_of(session: Session, process: Process) -> bytes:
    """All that the process wrote to its end."""
    followed = session.processes.output(process.id, follow=True)
    return b"".join([output.data async for output in followed])
