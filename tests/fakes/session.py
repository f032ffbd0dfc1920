"""A machine that is a folder and some processes of this one, and sessions into it."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from sandyard.runtime.errors import NotRunningError, PortClosedError
from sandyard.runtime.sessions.ports import PortConnection
from tests.fakes.session_files import FakeFiles
from tests.fakes.session_processes import FakeProcesses

STORAGE_BYTES = 128 * 1024 * 1024


class FakePorts:
    """What the machine's own processes listen on, nothing else of this machine."""

    def __init__(self, processes: FakeProcesses) -> None:
        self._processes = processes

    async def listening(self) -> Sequence[int]:
        await self._processes.list()
        return sorted(set(self._found()))

    async def connect(self, port: int) -> PortConnection:
        if port not in await self.listening():
            raise PortClosedError
        return PortConnection(*await asyncio.open_connection("127.0.0.1", port))

    def _found(self) -> Iterator[int]:
        for pid in self._processes.pids:
            process = psutil.Process(pid)
            for each in (process, *process.children(recursive=True)):
                for connection in each.net_connections("tcp"):
                    if connection.status == psutil.CONN_LISTEN:
                        yield connection.laddr.port


class FakeSession:
    def __init__(self, files: FakeFiles, processes: FakeProcesses, ports: FakePorts) -> None:
        self.files = files
        self.processes = processes
        self.ports = ports

    def as_root(self, *, for_user: bool = False) -> None:
        """It has none."""


class FakeMachine:
    def __init__(self, folder: Path, *, storage_bytes: int = STORAGE_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        require = self._require_running
        self._files = FakeFiles(folder, storage_bytes=storage_bytes, require_running=require)
        self._processes = FakeProcesses(folder, require_running=require)
        self._is_running = True

    async def connect(self) -> FakeSession:
        self._require_running()
        return FakeSession(self._files, self._processes, FakePorts(self._processes))

    async def end(self) -> None:
        await self._processes.end()
        self._is_running = False

    def _require_running(self) -> None:
        if not self._is_running:
            raise NotRunningError
