"""One program behind its walls, from its first line of output to its last process."""

import asyncio
import json
import os
import socket
import stat
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandyard.platform.runtime.errors import ExitedAtOnceError, NotListeningError
from sandyard.platform.runtime.local import logs, processes
from sandyard.platform.runtime.local.carry import Carriers
from sandyard.platform.runtime.local.jail import Jail, Walls
from sandyard.platform.runtime.local.records import Folder, Spec
from sandyard.platform.runtime.local.spawn import end, first_of, pinned, spawn

_WEB_SOCKET = "web"
_PORT_INSIDE = 8080
_CONNECTIONS = 200
_OPEN_FILES = 4096
_NICE = 5
_CHUNK = 64 * 1024
_PROCESSES_OF_OURS = 3
# Programs reserve far more address space than they use; what they use is limited by RLIMIT_DATA.
_ADDRESS_SPACE_SPARE = 64 << 30
_LINES_TOLD = 20


class RunningProgram:
    """Started by `start`; `exited` has its exit code once it ended by itself or was ended."""

    def __init__(self, process: Process, control: socket.socket, folder: Folder) -> None:
        self._process = process
        self._control = control
        self._folder = folder
        self._listens = asyncio.Event()
        self._visitors: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls, walls: Walls, spec: Spec, folder: Folder, *, command: str
    ) -> "RunningProgram":
        """Start the program, its relay and the reader of its output."""
        ours, theirs = socket.socketpair()
        listener = _bound(_WEB_SOCKET)
        read_end, write_end = os.pipe()
        enclosed = walls.enclose(
            [walls.python, "-I", "-S", f"{walls.tools}/launch.py", str(theirs.fileno())],
            environment={"LANG": "C.UTF-8"},
        )
        port = _PORT_INSIDE if isinstance(walls, Jail) else _free_port()
        job = _job(walls, spec, listener=listener.fileno(), port=port, command=command)
        ours.sendall(json.dumps(job).encode() + b"\n")
        ours.settimeout(0)
        with theirs, listener, pinned(spec.limits.cpu):
            process = await spawn(
                enclosed,
                stdout=write_end,
                stderr=write_end,
                inherited=(theirs.fileno(), listener.fileno()),
            )
        os.close(write_end)
        program = cls(process, ours, folder)
        writer = logs.LogWriter(folder.logs, limit_bytes=spec.log_bytes)
        for work in (program._pump(read_end, writer), program._hear(), program._await_exit()):
            program._tasks.append(asyncio.ensure_future(work))
        return program

    async def listening(self, *, timeout_sec: float) -> None:
        """Return when it listens on its port, or raise why it does not."""
        listens = asyncio.ensure_future(self._listens.wait())
        try:
            await first_of(listens, self.exited, timeout_sec=timeout_sec)
        finally:
            listens.cancel()
        if self.exited.done():
            await self._drain()
            raise ExitedAtOnceError(
                f"The program ended with code {self.exited.result()} before it listened on $PORT."
                + self._last_words()
            )
        if not self._listens.is_set():
            raise NotListeningError(
                f"The program did not listen on $PORT within {timeout_sec:g} s. Let its `web:` "
                "line serve on that port." + self._last_words()
            )

    async def open_to_visitors(self) -> int:
        """Listen on a port of the host's loopback for the program; which one."""
        carriers = Carriers(lambda: asyncio.open_unix_connection(_WEB_SOCKET), limit=_CONNECTIONS)
        self._visitors = await asyncio.start_server(carriers, "127.0.0.1", 0)
        port: int = self._visitors.sockets[0].getsockname()[1]
        return port

    async def end(self, *, grace_sec: float) -> None:
        """Ask it to end, wait for as long as is allowed, and then end all that is left."""
        if grace_sec and not self.exited.done():
            with suppress(OSError):
                self._control.send(b"stop\n")
            await asyncio.wait([self.exited], timeout=grace_sec)
        await self.kill()

    async def kill(self) -> None:
        await end(self._process)
        processes.kill_descendants(os.getpid())  # those that left their parents, without walls
        await self._drain()
        for task in self._tasks:
            task.cancel()
        if self._visitors is not None:
            self._visitors.close()
        self._control.close()
        with suppress(FileNotFoundError):
            os.unlink(_WEB_SOCKET)  # noqa: PTH108 - one quick call, async or not

    def _last_words(self) -> str:
        lines = logs.tail(self._folder.logs, _LINES_TOLD)
        return " Its last lines:\n" + "\n".join(lines) if lines else ""

    async def _drain(self) -> None:
        """Let what it wrote reach the log. Once nobody holds the pipe, that ends by itself."""
        await asyncio.wait(self._tasks[:1], timeout=1)

    async def _pump(self, read_end: int, writer: logs.LogWriter) -> None:
        reader = asyncio.StreamReader(limit=_CHUNK)
        pipe = os.fdopen(read_end, "rb", buffering=0)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while chunk := await reader.read(_CHUNK):
                pause_sec = writer.write(chunk)
                await asyncio.sleep(pause_sec)
        finally:
            transport.close()
            writer.close()

    async def _hear(self) -> None:
        loop = asyncio.get_running_loop()
        heard = b""
        with suppress(OSError):
            while chunk := await loop.sock_recv(self._control, 1024):
                *lines, heard = (heard + chunk)[-4096:].split(b"\n")
                for line in lines:
                    self._obey(line)

    def _obey(self, line: bytes) -> None:
        match line.split():
            case [b"listening"]:
                self._listens.set()
            case [b"exited", code] if code.isdigit() and not self.exited.done():
                self.exited.set_result(int(code) & 0xFF)

    async def _await_exit(self) -> None:
        code = await self._process.wait()
        await asyncio.sleep(0)
        if not self.exited.done():
            self.exited.set_result(code if code >= 0 else 128 - code)


def _job(walls: Walls, spec: Spec, *, listener: int, port: int, command: str) -> dict[str, Any]:
    limits = spec.limits
    rlimits = {
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": _OPEN_FILES,
        "RLIMIT_DATA": limits.memory_bytes,
        "RLIMIT_AS": limits.memory_bytes + _ADDRESS_SPACE_SPARE,
        "RLIMIT_FSIZE": limits.storage_bytes,
    }
    if isinstance(walls, Jail):  # without a user namespace all processes of the user would count
        rlimits["RLIMIT_NPROC"] = limits.processes + _PROCESSES_OF_OURS
    return {
        "command": ["/bin/sh", "-c", command],
        "folder": walls.folder,
        "environment": {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            **spec.environment,
            "HOME": walls.folder,
            "PORT": str(port),
        },
        "port": port,
        "listener": listener,
        "connections": _CONNECTIONS,
        "nice": _NICE,
        "rlimits": rlimits,
    }


def _bound(name: str) -> socket.socket:
    """A listener in the folder of the records, where nothing inside can reach its name."""
    path = Path(name)
    if path.exists() and stat.S_ISSOCK(path.lstat().st_mode):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen(_CONNECTIONS)
    return listener


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
