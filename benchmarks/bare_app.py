"""A bare application with one JSON route, on the same listener as `sandyard serve`.

Run as `python -m benchmarks.bare_app fastapi|starlette PORT`; it serves until SIGTERM.
"""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.load import Target
from benchmarks.loops import run
from sandyard.entrypoints.server.listeners import Listener
from sandyard.kit.free_ports import free_port

_START_SEC = 20


def fastapi_app() -> FastAPI:
    app = FastAPI()

    @app.get("/")
    async def answer() -> dict[str, str]:
        return {"status": "ok"}

    return app


def starlette_app() -> Starlette:
    async def answer(_request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    return Starlette(routes=[Route("/", answer)])


@contextmanager
def bare_server(framework: str) -> Iterator[Target]:
    """The application in a process of its own; gives its one call."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", __name__, framework, str(port)])
    try:
        _wait_until_it_answers(process, port)
        yield Target(port, process.pid, "GET", "/")
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SEC
    while time.monotonic() < deadline and process.poll() is None:
        try:
            httpx.get(f"http://127.0.0.1:{port}/", timeout=2).raise_for_status()
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the bare server did not start")


async def _serve(app: Any, port: int) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    listener = Listener(app, host="127.0.0.1", port=port)
    await listener.start()
    await stopping.wait()
    await listener.stop()


if __name__ == "__main__":
    _apps = {"fastapi": fastapi_app, "starlette": starlette_app}
    run(_serve(_apps[sys.argv[1]](), int(sys.argv[2])))
