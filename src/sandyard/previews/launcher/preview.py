"""The program of a preview: finds out what the project is, installs what it needs, runs its
development server, and shows a page for as long as that does not answer.

`python3 -I launcher.pyz HOST PORT SITE STATE`, with the standard library alone. It passes every
connection on to the development server, which listens on a port of its own. A change of what is
installed from installs again; after a failure, any change of a file tries again.
"""

import asyncio
import json
import os
import signal
import socket
from collections import deque
from contextlib import suppress
from typing import NoReturn, cast

from sandyard.previews.launcher.detection import (
    RESTARTS,
    Application,
    Purpose,
    detect,
    digest_of,
    read,
    times,
)
from sandyard.previews.launcher.serving import page, serve_files

PURPOSE = cast("Purpose", os.environ.get("PREVIEW_PURPOSE", "dev"))
INSTALL_SEC = float(os.environ.get("PREVIEW_INSTALL_SEC", "600"))
_POLL_SEC = 0.2
_STOP_SEC = 3
_RETRY_SEC = 10
_KEPT_LINES = 40
_PIECE = 1 << 16
_LITTLE = 1 << 20
LOG_BYTES = 4 << 20


class FailedError(Exception):
    """Its message says what failed; `code` is the exit code, if a program ended."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Preview:
    def __init__(self, site: str, state: str) -> None:
        self.site = site
        self.state = state
        self.reserve = os.path.join(state, "reserve")
        """What a full disk still has room for: the state that says so."""
        self.port = free_port()
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self.phase = "starting"
        self.kind = "static"
        self.has_begun = asyncio.Event()
        self.seen: set[tuple[str, int]] = set()
        """The files that the last attempt was made with."""

    async def run(self) -> NoReturn:
        while True:
            self.seen, seen = set(times(self.site)), self.restarts()
            try:
                application = detect(self.site, PURPOSE)
                self.kind = application.kind
                await self.serve(application, seen)
            except (FailedError, OSError, ValueError) as error:
                self.say(f"preview: {error}")
                self.tell("failed", getattr(error, "code", None))
                await self.until_changed()

    async def serve(self, application: Application, seen: set[tuple[str, int]]) -> None:
        """Return when what it is started from has changed."""
        if application.install is not None:
            await self.install(application.install)
        if application.start is None:
            server = serve_files(self.port, self.site)
            self.tell("running")
            while self.restarts() == seen:
                await asyncio.sleep(_POLL_SEC)
            await asyncio.to_thread(server.shutdown)
            server.server_close()
            return
        self.tell("starting")
        process = await self.spawn(application.start)
        reading = asyncio.ensure_future(self.read_lines(process))
        try:
            while self.restarts() == seen:
                if process.returncode is not None:
                    await asyncio.wait({reading}, timeout=1)
                    code = process.returncode
                    raise FailedError(f"the development server has ended with {code}", code)
                if self.phase == "starting":
                    with suppress(OSError):
                        (await open_connection(self.port))[1].close()
                        self.tell("running")
                await asyncio.sleep(_POLL_SEC)
        finally:
            await self.end(process)

    async def install(self, line: str) -> None:
        """Nothing if it was installed from the same manifests."""
        if read(self.state, "installed") == digest_of(self.site):
            return
        self.tell("installing")
        self.say(f"preview: {line}")
        process = await self.spawn(line)
        reading = asyncio.ensure_future(self.read_lines(process))
        try:
            await asyncio.wait_for(process.wait(), INSTALL_SEC)
            await asyncio.wait({reading}, timeout=1)
        except TimeoutError:
            raise FailedError(f"the installation took longer than {INSTALL_SEC:g} s") from None
        finally:
            await self.end(process)
        if process.returncode:
            code = process.returncode
            full = ": the preview's storage is full" if self.is_full(code) else ""
            raise FailedError(f"the installation has ended with {code}{full}", code)
        with open(os.path.join(self.state, "installed"), "w") as file:
            file.write(digest_of(self.site))  # a lock file may have been written

    def is_full(self, code: int) -> bool:
        """Also where one file grew larger than all storage, which ends its writer."""
        disk = os.statvfs(self.site)
        is_too_large = code in (-signal.SIGXFSZ, 128 + signal.SIGXFSZ)
        return is_too_large or disk.f_bavail * disk.f_frsize < _LITTLE

    async def spawn(self, line: str) -> asyncio.subprocess.Process:
        self.seen = set(times(self.site))
        own = [os.path.join(self.site, "node_modules/.bin"), os.path.abspath("venv/bin")]
        hosts = os.environ.get("PREVIEW_HOSTS", "")
        return await asyncio.create_subprocess_shell(
            line,
            cwd=self.site,
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={
                **os.environ,
                "PATH": os.pathsep.join([*own, os.environ.get("PATH", os.defpath)]),
                "PORT": str(self.port),
                "HOST": "127.0.0.1",
                "BROWSER": "none",
                "PYTHONUNBUFFERED": "1",
                "NEXT_TELEMETRY_DISABLED": "1",
                **({"__VITE_ADDITIONAL_SERVER_ALLOWED_HOSTS": hosts} if hosts else {}),
            },
        )

    async def read_lines(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while piece := await process.stdout.read(_PIECE):
            for line in piece.decode(errors="replace").splitlines():
                self.say(line)

    async def end(self, process: asyncio.subprocess.Process) -> None:
        """With all that it has started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
            except OSError:
                return
            try:
                await asyncio.wait_for(process.wait(), _STOP_SEC)
            except TimeoutError:
                continue

    async def until_changed(self) -> None:
        if PURPOSE == "run":  # its files stay as they are
            await asyncio.sleep(_RETRY_SEC)
            return
        await asyncio.sleep(1)  # if what failed changes files itself, it is tried again slowly
        while set(times(self.site)) == self.seen:
            await asyncio.sleep(2 * _POLL_SEC)

    def restarts(self) -> set[tuple[str, int]]:
        return set(times(self.site, RESTARTS))

    def say(self, line: str) -> None:
        self.lines.append(line)
        print(line, flush=True)
        if os.fstat(1).st_size > LOG_BYTES:  # a file; whoever reads a pipe bounds it
            os.ftruncate(1, 0)

    def tell(self, phase: str, exit_code: int | None = None) -> None:
        """For the server, which reads the file."""
        self.phase = phase
        self.has_begun.set()
        draft = os.path.join(self.state, "state.part")
        lines = list(self.lines) if phase == "failed" else []
        told = {"phase": phase, "kind": self.kind, "exit_code": exit_code, "lines": lines}
        open(self.reserve, "w").close()
        with open(draft, "w") as file:
            json.dump(told, file)
        os.replace(draft, os.path.join(self.state, "state.json"))
        with suppress(OSError), open(self.reserve, "w") as file:
            file.write(" " * _LITTLE)

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner, outer = await open_connection(self.port)
        except OSError:
            await self.show_page(reader, writer)
            return
        try:
            await asyncio.gather(_pump(reader, outer), _pump(inner, writer))
        except OSError:  # one side was killed: the other would wait for it
            pass
        finally:
            for each in (outer, writer):
                each.close()

    async def show_page(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            lines = self.lines if PURPOSE == "dev" else ()  # others are read by everybody
            body = page(self.phase, self.kind, lines).encode()
            head = (
                "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html; charset=utf-8\r\n"
                f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nCache-Control: no-store\r\n"
                "Connection: close\r\n\r\n"
            )
            writer.write(head.encode() + body)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def open_connection(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Some servers listen on IPv6's loopback alone."""
    try:
        return await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return await asyncio.open_connection("::1", port)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])


async def main(host: str, port: str, site: str, state: str) -> None:
    os.makedirs(site, exist_ok=True)
    os.makedirs(state, exist_ok=True)
    preview = Preview(os.path.abspath(site), os.path.abspath(state))
    running = asyncio.create_task(preview.run())
    await preview.has_begun.wait()
    server = await asyncio.start_server(preview.pass_on, host, int(port))
    async with server:
        await running
