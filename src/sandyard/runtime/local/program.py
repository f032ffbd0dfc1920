"""One isolated program, from its first line of output to its last process."""

import asyncio
import json
import os
import socket
import stat
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path
from typing import Any

from sandyard.runtime.errors import exited_at_once, not_listening
from sandyard.runtime.lifecycle import TAIL_LINES
from sandyard.runtime.local import logs, processes
from sandyard.runtime.local.forward import Forwarder
from sandyard.runtime.local.isolation import Isolation
from sandyard.runtime.local.jail import Jail
from sandyard.runtime.local.records import LocalRunFolder, Spec
from sandyard.runtime.local.spawn import first_of, kill_tree, pinned, spawn

_WEB_SOCKET = "web"
_PORT_INSIDE = 8080
_CONNECTIONS = 200
_OPEN_FILES = 4096
_NICE = 5
_CHUNK_BYTES = 64 * 1024
_PROCESSES_OF_OURS = 3
# Programs reserve far more address space than they use; what they use is limited by RLIMIT_DATA.
_ADDRESS_SPACE_SPARE = 64 << 30


class RunningProgram:
    """Started by `start`; `exited` has its exit code once it ended by itself or was ended."""

    def __init__(self, process: Process, control: socket.socket, folder: LocalRunFolder) -> None:
        self._process = process
        self._control = control
        self._folder = folder
        self._listens = asyncio.Event()
        self._port_server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls, isolation: Isolation, spec: Spec, folder: LocalRunFolder, *, command: str
    ) -> "RunningProgram":
        """Start the program, its relay and the reader of its output."""
        ours, theirs = socket.socketpair()
        listener = _bound(_WEB_SOCKET)
        read_end, write_end = os.pipe()
        wrapped = isolation.wrap(
            [isolation.python, "-I", "-S", f"{isolation.tools}/launch.py", str(theirs.fileno())],
            environment={"LANG": "C.UTF-8"},
        )
        port = _PORT_INSIDE if isinstance(isolation, Jail) else _free_port()
        job = _job(isolation, spec, listener=listener.fileno(), port=port, command=command)
        ours.sendall(json.dumps(job).encode() + b"\n")
        ours.settimeout(0)
        with theirs, listener, pinned(spec.limits.cpu):
            process = await spawn(
                wrapped,
                stdout=write_end,
                stderr=write_end,
                inherited=(theirs.fileno(), listener.fileno()),
            )
        os.close(write_end)
        program = cls(process, ours, folder)
        writer = logs.LogWriter(folder.logs, limit_bytes=spec.log_bytes)
        for work in (
            program._copy_output(read_end, writer),
            program._read_control(),
            program._await_exit(),
        ):
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
            raise exited_at_once(self.exited.result(), self._log_tail())
        if not self._listens.is_set():
            raise not_listening(timeout_sec, self._log_tail())

    async def open_port(self) -> int:
        """Forward a free port of the host's loopback to the program; its number."""
        forwarder = Forwarder(lambda: asyncio.open_unix_connection(_WEB_SOCKET), limit=_CONNECTIONS)
        self._port_server = await asyncio.start_server(forwarder, "127.0.0.1", 0)
        port: int = self._port_server.sockets[0].getsockname()[1]
        return port

    async def end(self, *, grace_sec: float) -> None:
        """Ask it to end, wait for as long as is allowed, and then end all that is left."""
        if grace_sec and not self.exited.done():
            with suppress(OSError):
                self._control.send(b"stop\n")
            await asyncio.wait([self.exited], timeout=grace_sec)
        await self.kill()

    async def kill(self) -> None:
        await kill_tree(self._process)
        processes.kill_descendants(os.getpid())  # those that left their parents, without isolation
        await self._drain()
        for task in self._tasks:
            task.cancel()
        if self._port_server is not None:
            self._port_server.close()
        self._control.close()
        with suppress(FileNotFoundError):
            os.unlink(_WEB_SOCKET)  # noqa: PTH108 - one quick call, async or not

    def _log_tail(self) -> list[str]:
        return logs.tail(self._folder.logs, TAIL_LINES)

    async def _drain(self) -> None:
        """Let what it wrote reach the log. Once nobody holds the pipe, that ends by itself."""
        await asyncio.wait(self._tasks[:1], timeout=1)

    async def _copy_output(self, read_end: int, writer: logs.LogWriter) -> None:
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        pipe = os.fdopen(read_end, "rb", buffering=0)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                pause_sec = writer.write(chunk)
                await asyncio.sleep(pause_sec)
        finally:
            transport.close()
            writer.close()

    async def _read_control(self) -> None:
        loop = asyncio.get_running_loop()
        received = b""
        with suppress(OSError):
            while chunk := await loop.sock_recv(self._control, 1024):
                *lines, received = (received + chunk)[-4096:].split(b"\n")
                for line in lines:
                    self._handle_message(line)

    def _handle_message(self, line: bytes) -> None:
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


def _job(
    isolation: Isolation, spec: Spec, *, listener: int, port: int, command: str
) -> dict[str, Any]:
    limits = spec.limits
    rlimits = {
        "RLIMIT_CORE": 0,
        "RLIMIT_NOFILE": _OPEN_FILES,
        "RLIMIT_DATA": limits.memory_bytes,
        "RLIMIT_AS": limits.memory_bytes + _ADDRESS_SPACE_SPARE,
        "RLIMIT_FSIZE": limits.storage_bytes,
    }
    # Without a user namespace all processes of the user would count.
    if isinstance(isolation, Jail):
        rlimits["RLIMIT_NPROC"] = limits.processes + _PROCESSES_OF_OURS
    return {
        "command": ["/bin/sh", "-c", command],
        "folder": isolation.folder,
        "environment": {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            **spec.environment,
            "HOME": isolation.folder,
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
