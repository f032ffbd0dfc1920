"""Each runtime with what its tests need around it, so that one suite runs over all of them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol

import httpx
import psutil

from sandyard.kit.clock import SystemClock
from sandyard.kit.errors import SandyardError
from sandyard.runtime.kubernetes.manifest import name_of
from sandyard.runtime.local.records.run_folder import LocalRunFolder
from sandyard.runtime.local.server.machines import LocalMachines
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Ended, Files, Program, RunId, Running, RunState
from sandyard.runtime.ports import Runtime
from sandyard.runtime.programs.runner import ProgramRunner
from sandyard.runtime.programs.start import ProgramTimeouts
from sandyard.runtime.records.run_folder import RunFolders
from sandyard.runtime.sessions.ports import Ports
from sandyard.runtime.store.archives import ArchiveFolder
from tests.integration.runtime_e2b.runtimes import connect_to, page_of, sandbox_id_of
from tests.support.e2b.machines import E2bMachines, e2b_machines
from tests.support.kubernetes.cluster import AnyCluster, any_cluster
from tests.support.runtime.programs import end_all

RUNTIMES = ("local", "e2b", "kubernetes")
WITHOUT_ROOT = "local-without-root"
"""As on a host that can give sandboxes no root of their own."""
GVISOR = "local-gvisor"
"""With a kernel for each sandbox."""
LOCAL_OPTIONS = {
    "local": LocalOptions(),
    WITHOUT_ROOT: LocalOptions(root="none"),
    GVISOR: LocalOptions(isolation="gvisor"),
}
SERVE = 'exec python3 -m http.server "$PORT" >/dev/null 2>&1'
"""Shows the workspace."""
UNTIL_GO = "while [ ! -e go ]; do sleep 0.05; done"
"""Waits for the file `go` in the workspace."""
_PATIENCE_SEC = 20


class RuntimeHost(Protocol):
    """A runtime, and the machine or the provider that it runs programs on."""

    def connect(self, *, listen_timeout_sec: float = 20) -> Runtime:
        """What a server of its own would use; all of them know the same runs."""
        ...

    def outage(self) -> AbstractContextManager[Runtime]:
        """What a server uses while it can't reach what the others reached before."""
        ...

    async def page(self, running: Running, path: str = "/") -> httpx.Response:
        """As a browser gets it. Raises httpx.TransportError if nothing answers."""
        ...

    async def kill(self, running: Running) -> None:
        """End it as a failure of the machine would, with no chance to record anything."""
        ...

    def count_machines(self) -> int:
        """How many programs really have a place where they run, whatever the records say."""
        ...


class LocalHost:
    def __init__(self, folder: Path, policy: LocalOptions | None = None) -> None:
        self._folder = folder / "runtime"
        self._policy = policy
        self._file = folder / "a file"
        self._file.touch()

    def connect(self, *, listen_timeout_sec: float = 20) -> ProgramRunner:
        return local_runtime(self._folder, self._policy, listen_timeout_sec=listen_timeout_sec)

    @contextmanager
    def outage(self) -> Iterator[ProgramRunner]:
        yield local_runtime(self._file / "runtime")

    async def page(self, running: Running, path: str = "/") -> httpx.Response:
        return await page_of_run(self.connect(), running, path)

    async def kill(self, running: Running) -> None:
        folder = RunFolders(self._folder).path_of(running.run_id)
        pid = LocalRunFolder(folder).supervisor_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def count_machines(self) -> int:
        """A supervisor leads a session; its egress proxy, with the same words, does not."""
        found = psutil.process_iter(["pid", "cmdline"])
        leaders = [each.info["cmdline"] or [] for each in found if _leads(each.info["pid"])]
        supervised = f"{self._folder}/"
        return sum(any(word.startswith(supervised) for word in words) for words in leaders)


def _leads(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def local_runtime(
    folder: Path, options: LocalOptions | None = None, *, listen_timeout_sec: float = 20
) -> ProgramRunner:
    clock = SystemClock()
    machines = LocalMachines(folder, options or LocalOptions(), clock)
    timeouts = ProgramTimeouts(listen_timeout_sec=listen_timeout_sec)
    archives = ArchiveFolder(folder / "archives")
    return ProgramRunner(machines, machines.records, archives, timeouts, clock)


async def page_of_run(runtime: Runtime, running: Running, path: str = "/") -> httpx.Response:
    """As a browser gets it through the gateway. Raises httpx.TransportError."""
    try:
        session = await runtime.session(running.run_id)
        return await page_through(session.ports, running.port, path)
    except SandyardError as error:
        raise httpx.ConnectError(str(error)) from error


async def page_through(ports: Ports, port: int, path: str = "/") -> httpx.Response:
    """What a program answers on this port. Raises httpx.TransportError."""
    try:
        connection = await ports.connect(port)
    except SandyardError as error:
        raise httpx.ConnectError(str(error)) from error
    target = httpx.URL("http://sandbox").join(path).raw_path.decode()
    connection.writer.write(f"GET {target} HTTP/1.0\r\nHost: sandbox\r\n\r\n".encode())
    try:
        head, _, body = (await connection.reader.read()).partition(b"\r\n\r\n")
    except OSError as error:
        raise httpx.ReadError(str(error)) from error
    finally:
        connection.writer.close()
    if not head:
        raise httpx.ReadError("nothing was answered")
    lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    return httpx.Response(int(lines[0].split()[1]), headers=headers, content=body)


class E2bHost:
    def __init__(self, folder: Path, double: E2bMachines) -> None:
        self._folder = folder / "runtime"
        self._double = double

    def connect(self, *, listen_timeout_sec: float = 20) -> ProgramRunner:
        return connect_to(self._double, self._folder, listen_timeout_sec=listen_timeout_sec)

    @contextmanager
    def outage(self) -> Iterator[ProgramRunner]:
        self._double.inject("unavailable")
        try:
            yield self.connect()
        finally:
            self._double.calm()

    async def page(self, running: Running, path: str = "/") -> httpx.Response:
        answer = await page_of(self._double, running, path)
        if answer.status_code == 502:
            raise httpx.ConnectError("E2B's proxy finds nothing there")
        return answer

    async def kill(self, running: Running) -> None:
        assert self._double.end(sandbox_id_of(self._double, running.run_id))

    def count_machines(self) -> int:
        return len(self._double.boxes)


class KubernetesHost:
    def __init__(self, found: AnyCluster) -> None:
        self._cluster = found

    def connect(self, *, listen_timeout_sec: float = 20) -> ProgramRunner:
        return self._cluster.runtime(listen_timeout_sec=listen_timeout_sec)

    @contextmanager
    def outage(self) -> Iterator[ProgramRunner]:
        """At an address where nobody listens."""
        yield self._cluster.runtime(url="http://127.0.0.1:9")

    async def page(self, running: Running, path: str = "/") -> httpx.Response:
        return await page_of_run(self._cluster.shared, running, path)

    async def kill(self, running: Running) -> None:
        await self._cluster.kill(name_of(running.run_id))

    def count_machines(self) -> int:
        return self._cluster.count_running()


@asynccontextmanager
async def runtime_host(name: str, folder: Path) -> AsyncIterator[RuntimeHost]:
    """The host of this name; nothing is left running on it."""
    if name in LOCAL_OPTIONS:
        local = LocalHost(folder, LOCAL_OPTIONS[name])
        try:
            yield local
        finally:
            await end_all(local.connect())
        return
    if name == "kubernetes":
        async with any_cluster(folder) as found:
            yield KubernetesHost(found)
        return
    machines = folder / "machines"
    machines.mkdir()
    async with e2b_machines(machines) as double:
        yield E2bHost(folder, double)


def serving(*commands: str) -> Program:
    """A program that runs these commands and then shows its workspace."""
    return web("; ".join((*commands, SERVE)))


def web(command: str, **files: bytes) -> Program:
    """A program with this `web:` line, and files besides."""
    return Program(Files({"Procfile": f"web: {command}\n".encode(), **files}))


async def until(runtime: Runtime, run_id: RunId, state: type[RunState]) -> RunState:
    """The run, once it is in this state."""
    async with asyncio.timeout(_PATIENCE_SEC):
        while not isinstance(run := await runtime.refresh(run_id), state):
            await asyncio.sleep(0.02)
    return run


async def until_ended(runtime: Runtime, run_id: RunId) -> Ended:
    ended = await until(runtime, run_id, Ended)
    assert isinstance(ended, Ended)
    return ended


async def until_no_machine_is_left(host: RuntimeHost) -> None:
    """A supervisor may still clean up when its end is already told."""
    async with asyncio.timeout(_PATIENCE_SEC):
        while host.count_machines():
            await asyncio.sleep(0.02)


async def until_silent(host: RuntimeHost, running: Running) -> None:
    """Return when nothing answers any more; the runtime is not asked."""
    async with asyncio.timeout(_PATIENCE_SEC):
        while True:
            try:
                await host.page(running)
            except httpx.TransportError:
                return
            await asyncio.sleep(0.05)
