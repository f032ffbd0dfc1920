"""Each runtime with what its tests need around it, so that one suite runs over all of them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import httpx
import psutil

from sandyard.runtime.e2b.runtime import E2bRuntime
from sandyard.runtime.local.records import LocalRunFolder
from sandyard.runtime.local.runtime import LocalRuntime
from sandyard.runtime.local.specs import LocalPolicy
from sandyard.runtime.model import Ended, Files, Program, RunId, Running, RunState
from sandyard.runtime.ports import Runtime
from tests.e2b_machines import E2bMachines, e2b_machines
from tests.integration.runtime.programs import end_all
from tests.integration.runtime_e2b.runtimes import connect_to, page_of

RUNTIMES = ("local", "e2b")
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
    def __init__(self, folder: Path) -> None:
        self._folder = folder / "runtime"
        self._file = folder / "a file"
        self._file.touch()

    def connect(self, *, listen_timeout_sec: float = 20) -> LocalRuntime:
        return LocalRuntime(self._folder, LocalPolicy(listen_timeout_sec=listen_timeout_sec))

    @contextmanager
    def outage(self) -> Iterator[LocalRuntime]:
        yield LocalRuntime(self._file / "runtime")

    async def page(self, running: Running, path: str = "/") -> httpx.Response:
        async with httpx.AsyncClient() as client:
            return await client.get(running.url + path)

    async def kill(self, running: Running) -> None:
        workspace = self.connect().workspace_of(running.run_id)
        pid = LocalRunFolder(workspace.parent).supervisor_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def count_machines(self) -> int:
        commands = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
        supervised = f"{self._folder}/"
        return sum(any(word.startswith(supervised) for word in words) for words in commands)


class E2bHost:
    def __init__(self, folder: Path, double: E2bMachines) -> None:
        self._folder = folder / "runtime"
        self._double = double

    def connect(self, *, listen_timeout_sec: float = 20) -> E2bRuntime:
        return connect_to(self._double, self._folder, listen_timeout_sec=listen_timeout_sec)

    @contextmanager
    def outage(self) -> Iterator[E2bRuntime]:
        self._double.inject("unavailable")
        yield self.connect()
        self._double.calm()

    async def page(self, running: Running, path: str = "/") -> httpx.Response:
        answer = await page_of(self._double, running, path)
        if answer.status_code == 502:
            raise httpx.ConnectError("E2B's proxy finds nothing there")
        return answer

    async def kill(self, running: Running) -> None:
        sandbox_id = urlsplit(running.url).netloc.partition(".")[0].partition("-")[2]
        assert self._double.end(sandbox_id)

    def count_machines(self) -> int:
        return len(self._double.boxes)


@asynccontextmanager
async def runtime_host(name: str, folder: Path) -> AsyncIterator[RuntimeHost]:
    """The host of this name; nothing is left running on it."""
    if name == "local":
        local = LocalHost(folder)
        yield local
        await end_all(local.connect())
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
        while not isinstance(run := await runtime.find(run_id), state):
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
