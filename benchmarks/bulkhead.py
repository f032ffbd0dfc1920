"""The cost of the hop to the tenants' process: `python -m benchmarks hop`.

The same bare application behind a port of its own and behind the main process, asked in turns.
"""

import asyncio
import http.client
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from starlette.types import Receive, Scope, Send
from websockets.sync.client import connect

from benchmarks.report import Figure, Measured, Say
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.entrypoints.server.bulkhead.calls import Answerer
from sandyard.entrypoints.server.bulkhead.channel import UP, Channel
from sandyard.entrypoints.server.bulkhead.keeper import fork_keeper
from sandyard.entrypoints.server.bulkhead.tenants import Bulkhead, TenantsProcess
from sandyard.entrypoints.server.listeners import Listener
from sandyard.kit.free_ports import free_port

_SMALL, _LARGE = bytes(1000), bytes(10_000_000)
_ROUNDS, _SMALL_CALLS, _LARGE_CALLS = 5, 400, 10


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await _echo(receive, send)
        return
    while scope["method"] == "POST" and (await receive()).get("more_body"):
        pass
    body = _LARGE if scope["path"] == "/large" else _SMALL
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for begin in range(0, len(body), 1 << 16):
        piece = body[begin : begin + (1 << 16)]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _echo(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "bytes": message["bytes"]})


async def _serve_tenants(end: socket.socket) -> None:
    channel = Channel(end)
    answerer = Answerer(_app, _app)
    channel.listen(on_call=answerer.accept, on_word=lambda _word: None)
    await channel.tell(UP)
    await asyncio.Event().wait()


def _fork_server(port: int, *, with_hop: bool) -> int:
    import uvloop

    if pid := os.fork():
        return pid
    keeper = fork_keeper(lambda end, _up: uvloop.run(_serve_tenants(end))) if with_hop else None

    async def serve() -> None:
        app = _app
        if keeper is not None:
            tenants = TenantsProcess(keeper, on_end=lambda: None)
            tenants.listen(_app)
            app = Bulkhead(_app, tenants.caller, lambda _scope: False, InFlight())
        await Listener(app, host="127.0.0.1", port=port).start()
        await asyncio.Event().wait()

    uvloop.run(serve())
    sys.exit(0)


def _seconds(port: int, calls: int, method: str, path: str, body: bytes | None = None) -> float:
    """The time of one call, by a client with one connection."""
    client = http.client.HTTPConnection("127.0.0.1", port)
    began = time.perf_counter()
    for _ in range(calls):
        client.request(method, path, body)
        client.getresponse().read()
    client.close()
    return (time.perf_counter() - began) / calls


def _echo_seconds(port: int, messages: int) -> float:
    """From a message of 1 kB to its echo."""
    with connect(f"ws://127.0.0.1:{port}/", proxy=None) as client:
        began = time.perf_counter()
        for _ in range(messages):
            client.send(_SMALL)
            client.recv()
        return (time.perf_counter() - began) / messages


_CASES: dict[str, Callable[[int], float]] = {
    "1 kB down": lambda port: _seconds(port, _SMALL_CALLS, "GET", "/"),
    "10 MB down": lambda port: _seconds(port, _LARGE_CALLS, "GET", "/large"),
    "10 MB up": lambda port: _seconds(port, _LARGE_CALLS, "POST", "/", _LARGE),
    "echo of 1 kB by a WebSocket": lambda port: _echo_seconds(port, _SMALL_CALLS),
}


def measure(_folder: Path, say: Say) -> Measured:
    say("hop: a bare application behind its own port, and behind the main process")
    direct, hop = free_port(), free_port()
    servers = [_fork_server(direct, with_hop=False), _fork_server(hop, with_hop=True)]
    time.sleep(2)
    try:
        return Measured([_figure(name, case, direct, hop) for name, case in _CASES.items()])
    finally:
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _figure(name: str, case: Callable[[int], float], direct: int, hop: int) -> Figure:
    case(direct)
    case(hop)
    pairs = [(case(direct), case(hop)) for _ in range(_ROUNDS)]
    own, passed = (median(times) * 1000 for times in zip(*pairs, strict=True))
    ratio = median(passed / own for own, passed in pairs)
    shown = f"{passed:.2f} ms, {ratio:.1f} times {own:.2f} ms"
    return Figure(f"{name} through the main process, against a port of its own", shown)
