"""`sessions.ports.Session` into a machine elsewhere, and the machine as a whole, by its guest."""

import asyncio
import base64
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import urlsplit

from sandyard.runtime.errors import PortClosedError
from sandyard.runtime.guest.processes import PROGRAM
from sandyard.runtime.guest.program import ProgramState
from sandyard.runtime.model import Log
from sandyard.runtime.remote.connection import Connection
from sandyard.runtime.remote.envd import Envd
from sandyard.runtime.remote.errors import CallError
from sandyard.runtime.remote.files import RemoteFiles
from sandyard.runtime.remote.guest import HOME, STATE
from sandyard.runtime.remote.http import parsing
from sandyard.runtime.remote.processes import RemoteProcesses
from sandyard.runtime.sessions.model import WORKSPACE
from sandyard.runtime.sessions.ports import Files, PortConnection, Ports

_CONNECT_SEC = 10
_END_SEC = 10


class RemotePorts:
    """The proxy accepts HTTP and WebSocket, for a host name made of the port and the machine."""

    def __init__(
        self, connection: Connection, host_of: Callable[[int], str], *, proxy_url: str | None
    ) -> None:
        """If set, `proxy_url` is connected to instead of that host."""
        self._connection = connection
        self._host_of = host_of
        self._proxy_url = proxy_url

    async def listening(self) -> Sequence[int]:
        ports = await self._connection.ask("listening")
        with self._connection.parsing():
            return sorted({int(port) for port in ports})

    async def connect(self, port: int) -> PortConnection:
        if port not in await self.listening():
            raise PortClosedError
        host = self._host_of(port)
        try:
            async with asyncio.timeout(_CONNECT_SEC):
                reader, writer = await self._open(host)
        except (OSError, TimeoutError) as error:
            failure = CallError("unreachable", f"{host}: {error}")
            raise self._connection.translate(failure) from error
        return PortConnection(reader, writer, host)

    async def _open(self, host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        url = urlsplit(self._proxy_url or f"https://{host}")
        if url.scheme == "http":
            return await asyncio.open_connection(url.hostname, url.port or 80)
        context = await asyncio.to_thread(ssl.create_default_context)
        name = host.partition(":")[0]
        return await asyncio.open_connection(
            url.hostname, url.port or 443, ssl=context, server_hostname=name
        )


@dataclass(frozen=True, slots=True)
class Usage:
    workspace_bytes: int
    processes: int


class RemoteSession:
    def __init__(
        self, connection: Connection, host_of: Callable[[int], str], *, proxy_url: str | None
    ) -> None:
        """`host_of` is the host name of a port; `proxy_url` is connected to instead, if set."""
        self._connection = connection
        self.files: Files = RemoteFiles(connection)
        self.processes = RemoteProcesses(connection)
        self.ports: Ports = RemotePorts(connection, host_of, proxy_url=proxy_url)

    def as_root(self, *, for_user: bool = False) -> None:
        """None: commands use `sudo` there."""

    async def prepare(self) -> None:
        """Make the workspace, at its standard path."""
        await self._connection.ask("prepare")
        link = {"cmd": "/bin/ln", "args": ["-sfnT", f"{HOME}{WORKSPACE}", WORKSPACE]}
        async with self._connection.reaching():
            await run(self._connection.envd, link, user="root")

    async def program(self) -> ProgramState | None:
        """The state of the machine's program, if it was ever started."""
        timeout_sec = self._connection.timeout_sec
        pieces = self._connection.envd.download(
            f"{self._connection.home}/{STATE}/program.json", within_sec=timeout_sec
        )
        try:
            async with aclosing(pieces):
                content = b"".join([piece async for piece in pieces])
        except CallError as error:
            if error.trouble == "not_found":
                return None
            raise self._connection.translate(error) from error
        with self._connection.parsing():
            return ProgramState(**json.loads(content))

    async def stop_program(self) -> None:
        await self._connection.ask("stop", more_sec=_END_SEC)

    async def end_processes(self) -> None:
        """End all processes, including those that left their parents."""
        await self._connection.ask("end", more_sec=_END_SEC)

    async def read_log(self, begin: int | None = None) -> Log:
        log = await self._connection.ask("read_log", process_id=PROGRAM, begin=begin)
        with self._connection.parsing():
            return Log(int(log["begins_at"]), base64.b64decode(log["data"]))

    async def usage(self) -> Usage:
        usage = await self._connection.ask("usage")
        with self._connection.parsing():
            return Usage(int(usage["workspace_bytes"]), int(usage["processes"]))


async def run(envd: Envd, process: Mapping[str, object], *, user: str = "") -> None:
    """Run a command in a machine to its end. Raises CallError if it fails."""
    start = envd.stream("process.Process/Start", {"process": process}, user=user)
    async with aclosing(start) as messages:
        async for message in messages:
            with parsing():
                end = message["event"].get("end")
            if end is not None:
                if end.get("exitCode"):
                    raise CallError("other", f"{process['cmd']}: {end.get('status')}")
                return
