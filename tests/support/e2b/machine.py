"""The inside of one sandbox of E2B's double: bubblewrap isolates it, and its processes are real."""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.support.e2b import network as e2b_network

HOME = "/home/user"
_MARK = "E2B_MACHINE"
_LINKS = {"usr/bin": "/bin", "usr/sbin": "/sbin", "usr/lib": "/lib", "usr/lib64": "/lib64"}


@dataclass(frozen=True, slots=True)
class MachineOptions:
    environment: Mapping[str, str] = field(default_factory=dict)
    readable: Sequence[Path] = ()
    """Files of this machine that are seen inside too."""
    reachable: Sequence[int] = ()
    """Ports of this machine that are connected to as one's own."""
    storage_bytes: int | None = None
    """What the home folder may hold; without, what this machine's disk does."""


class Command:
    """A process, which goes on when nobody hears of it any more."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._told: asyncio.Queue[tuple[str, bytes] | None] | None = asyncio.Queue()
        self._reading = asyncio.create_task(self._read())

    async def output(self) -> AsyncIterator[tuple[str, bytes]]:
        """Whoever comes second hears nothing."""
        told = self._told
        try:
            while told is not None and (piece := await told.get()) is not None:
                yield piece
        finally:
            self._told = None

    async def ended(self) -> int:
        await self._reading
        return await self.process.wait()

    async def _read(self) -> None:
        streams = {"stdout": self.process.stdout, "stderr": self.process.stderr}
        await asyncio.gather(*(self._read_one(name, each) for name, each in streams.items()))
        if self._told is not None:
            self._told.put_nowait(None)

    async def _read_one(self, name: str, stream: asyncio.StreamReader | None) -> None:
        while stream is not None and (data := await stream.read(65536)):
            if self._told is not None:
                self._told.put_nowait((name, data))


class Machine:
    def __init__(self, sandbox_id: str, options: MachineOptions) -> None:
        self.sandbox_id = sandbox_id
        self.commands: dict[int, Command] = {}
        self._options = options
        self._sockets = Path(mkdtemp(prefix="e2b-"))
        self._children: list[Process] = []
        self._pid = 0
        self._way_out: asyncio.Server | None = None

    async def begin(self, home: Path) -> None:
        """Its home folder is this one, unless its storage is limited."""
        await self._isolate(home)
        self._way_out = await asyncio.start_unix_server(
            e2b_network.enter, str(self._sockets / "out")
        )
        network = await asyncio.create_subprocess_exec(
            *(*self._entering("-n"), sys.executable, e2b_network.__file__),
            *(str(self._sockets), *map(str, self._options.reachable)),
            stdout=PIPE,
        )
        self._children.append(network)
        await _until_ready(network)

    def path(self, path: str) -> Path:
        """Where this machine finds a path of that one."""
        return Path(f"/proc/{self._pid}/root{Path(HOME) / path}")

    async def spawn(self, order: dict[str, Any], *, has_input: bool) -> Command:
        folder = order.get("cwd", HOME).replace("~", HOME)
        process = await asyncio.create_subprocess_exec(
            *(*self._entering("-m", "-n"), "/usr/bin/env", "-C", folder),
            *(order["cmd"], *order["args"]),
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": HOME,
                **self._options.environment,
                **order.get("envs", {}),
                _MARK: self.sandbox_id,
            },
            stdin=PIPE if has_input else DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        self.commands[process.pid] = command = Command(process)
        return command

    def request(
        self, port: int, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """What the program on this port answers. Raises OSError if nothing does."""
        connection = _Inside(self._sockets / "in", port)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def pids(self) -> Iterator[int]:
        """All processes that were begun in it, whoever their parents are now."""
        mark = f"{_MARK}={self.sandbox_id}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)

    def signal(self, number: int) -> None:
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def destroy(self) -> None:
        while list(self.pids()):
            self.signal(signal.SIGKILL)
            await asyncio.sleep(0.01)
        for command in self.commands.values():
            await command.ended()
        for child in self._children:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
        if self._way_out is not None:  # its network was never asked for
            self._way_out.close()
        shutil.rmtree(self._sockets)

    async def _isolate(self, home: Path) -> None:
        reader, writer = os.pipe()
        size = self._options.storage_bytes
        holder = await asyncio.create_subprocess_exec(
            *("bwrap", "--die-with-parent", "--unshare-net", "--info-fd", str(writer)),
            *("--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"),
            *(word for far, near in _LINKS.items() for word in ("--symlink", far, near)),
            *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108 - its own
            *(("--size", str(size), "--tmpfs", HOME) if size else ("--bind", str(home), HOME)),
            *(word for path in self._options.readable for word in ("--ro-bind", *[str(path)] * 2)),
            *("sh", "-c", "echo ready; exec sleep infinity"),
            stdout=PIPE,
            pass_fds=[writer],
        )
        os.close(writer)
        self._children.append(holder)
        await _until_ready(holder)
        with os.fdopen(reader, "rb") as told:
            self._pid = json.load(told)["child-pid"]

    def _entering(self, *spaces: str) -> Sequence[str]:
        user = () if os.getuid() == 0 else ("-U", "--preserve-credentials")
        return ("nsenter", "-t", str(self._pid), *user, *spaces, "--")


class _Inside(HTTPConnection):
    """HTTP to a port of a machine."""

    def __init__(self, way_in: Path, port: int) -> None:
        super().__init__("machine", timeout=30)
        self._way_in = way_in
        self._port = port

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._way_in))
        self.sock.sendall(f"{self._port}\n".encode())


async def _until_ready(child: Process) -> None:
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
