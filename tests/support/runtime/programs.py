"""Programs for the tests, and what the tests need to drive them. Knows only the standard library,
so that the system's Python can run it as an ordinary user."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from time import time_ns
from typing import Protocol

from sandyard.kit.errors import SandyardError
from sandyard.runtime.model import Ended, Files, Kind, Limits, Program, RunId, Running
from sandyard.runtime.ports import Runtime

MEGABYTE = 1 << 20
KINDS: tuple[Kind, ...] = ("sandbox", "preview")
LIMITS = Limits(
    cpu=1,
    memory_bytes=256 * MEGABYTE,
    processes=32,
    storage_bytes=256 * MEGABYTE,
    max_running_sec=600,
)
STATIC = Program(Files({"index.html": b"<h1>hello</h1>"}))

# Runs the code that it is sent, as a program that somebody took over would.
OBEDIENT_APP = b"""
import contextlib, http.server, io, os, traceback

class Obedient(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"at your service")

    def do_POST(self):
        code = self.rfile.read(int(self.headers["Content-Length"])).decode()
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            try:
                exec(code, {})
            except BaseException:
                print(traceback.format_exc())
        self.answer(said.getvalue().encode(errors="replace"))

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer.request_queue_size = 128
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Obedient).serve_forever()
"""
OBEDIENT = Program(Files({"Procfile": b"web: exec python3 app.py\n", "app.py": OBEDIENT_APP}))

_numbers = count()


def new_run_id(name: str = "box") -> RunId:
    return RunId("sandbox", name, f"a{time_ns()}-{next(_numbers)}")


def shell(command: str) -> Program:
    """A program whose `web:` line is this command."""
    return Program(Files({"Procfile": f"web: {command}\n".encode()}))


@asynccontextmanager
async def started(
    runtime: Runtime, program: Program = OBEDIENT, limits: Limits = LIMITS
) -> AsyncIterator[Running]:
    """A running program, and nothing left of it afterwards."""
    run_id = new_run_id()
    try:
        yield await runtime.start(run_id, program, limits)
    finally:
        await clear(runtime, run_id)


async def clear(runtime: Runtime, run_id: RunId) -> None:
    if await runtime.refresh(run_id) is not None:
        await runtime.stop(run_id)
        await runtime.forget(run_id)


class Fetching(Runtime, Protocol):
    """A runtime whose programs can be asked."""

    async def fetch(self, running: Running, body: bytes | None = None) -> bytes: ...


async def inside(runtime: Fetching, running: Running, code: str) -> str:
    """What the code prints when the obedient program runs it."""
    return (await runtime.fetch(running, code.encode())).decode().strip()


async def send(runtime: Fetching, running: Running, code: str) -> None:
    """Let it run code that it may not survive."""
    try:
        await inside(runtime, running, code)
    except (OSError, SandyardError):
        return


async def end_all(runtime: Runtime) -> None:
    """Leave nothing behind, whatever a test started."""
    for kind in KINDS:
        for held in await runtime.list_runs(kind):
            await clear(runtime, held.run_id)


async def until_ended(runtime: Runtime, run_id: RunId, *, within_sec: float = 60) -> Ended:
    async with asyncio.timeout(within_sec):
        while not isinstance(held := await runtime.refresh(run_id), Ended):
            await asyncio.sleep(0.02)
    return held
