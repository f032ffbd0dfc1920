"""Carries connections across the border of a network namespace.

Runs inside the sandbox as a copy (see `launch`), and in the supervisor. Inside it trusts nobody:
the program beside it may do to it what it likes, and so harm itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]
_CHUNK = 64 * 1024
_LISTENING = "0A"


async def carry(near: Streams, far: Streams) -> None:
    """Copy bytes both ways until both sides have said all they had to say."""
    try:
        await asyncio.gather(_copy(near[0], far[1]), _copy(far[0], near[1]))
    except OSError:
        pass  # one side is gone, and so is the conversation
    finally:
        near[1].close()
        far[1].close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while chunk := await source.read(_CHUNK):
        sink.write(chunk)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()


class Carriers:
    """The connections under way; those beyond `limit` wait for their turn."""

    def __init__(self, connect: Connect, *, limit: int) -> None:
        self._connect = connect
        self._turns = asyncio.Semaphore(limit)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._turns:
            try:
                far = await self._connect()
            except OSError:
                writer.close()
                return
            await carry((reader, writer), far)


def listens(port: int) -> bool:
    """Whether anything in this network namespace listens on the port."""
    tables = [table for table in map(Path, ("/proc/net/tcp", "/proc/net/tcp6")) if table.exists()]
    if not tables:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0
    rows = (row.split() for table in tables for row in table.read_text().splitlines()[1:])
    return any(
        row[3] == _LISTENING and int(row[1].rsplit(":", 1)[1], 16) == port for row in rows
    )


class Watch:
    """One program from start to end, told to the supervisor over `control`."""

    def __init__(self, job: dict[str, Any], control: socket.socket, pid: int) -> None:
        self._port: int = job["port"]
        self._listener: int = job["listener"]
        self._connections: int = job["connections"]
        self._control = control
        self._pid = pid
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)
        self._reap()  # it may have ended before the handler was there
        listener = socket.socket(fileno=self._listener)
        listener.setblocking(False)
        carriers = Carriers(self._connect, limit=self._connections)
        server = await asyncio.start_unix_server(carriers, sock=listener)
        tasks = [asyncio.ensure_future(self._announce()), asyncio.ensure_future(self._obey())]
        code = await self._code
        for task in tasks:
            task.cancel()
        server.close()
        self._tell(f"exited {code}\n")
        return code

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid and not self._code.done():
                code = os.waitstatus_to_exitcode(status)
                self._code.set_result(code if code >= 0 else 128 - code)

    async def _connect(self) -> Streams:
        try:
            return await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return await asyncio.open_connection("::1", self._port)

    async def _announce(self) -> None:
        while not listens(self._port):
            await asyncio.sleep(0.01)
        self._tell("listening\n")

    async def _obey(self) -> None:
        """Ask the program to end when told to; end it when the supervisor is gone."""
        loop = asyncio.get_running_loop()
        while await loop.sock_recv(self._control, 16):
            self._signal(signal.SIGTERM)
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)

    def _tell(self, line: str) -> None:
        with suppress(OSError):
            self._control.send(line.encode())


def watch(job: dict[str, Any], control: socket.socket, pid: int) -> int:
    async def run() -> int:
        return await Watch(job, control, pid).run()

    control.setblocking(False)
    return asyncio.run(run())


async def gated(gate: str, port: int, command: list[str]) -> int:
    """Run a command whose only way out is the proxy on `port`, which is the socket `gate`."""
    carriers = Carriers(lambda: asyncio.open_unix_connection(gate), limit=16)
    server = await asyncio.start_server(carriers, "127.0.0.1", port)
    process = await asyncio.create_subprocess_exec(*command)
    code = await process.wait()
    server.close()
    return code


if __name__ == "__main__":
    sys.exit(asyncio.run(gated(sys.argv[1], int(sys.argv[2]), sys.argv[3:])))
