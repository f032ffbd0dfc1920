"""The network of sandboxes: connections made directly beside those through the proxy's port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.report import Figure, Measured, Say
from sandyard.runtime.local.gvisor.runsc import runsc
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import IsolationMode, Program
from sandyard.runtime.sessions.ports import Session
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, MEGABYTE, end_all, new_run_id
from tests.support.runtime.sessions import shell
from tests.support.services.package_indexes import HOST, NETWORK

_ROUNDS = 5
_MEGABYTES = 100
_CONNECTIONS = 50
_LEAST = 0.9
_CLIENT = """
import socket, time
def opened(is_direct):
    if is_direct:
        return socket.create_connection(("{host}", {port}))
    made = socket.create_connection(("127.0.0.1", 3128))
    made.sendall(b"CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n")
    while not made.recv(1000).endswith(b"\\r\\n\\r\\n"):
        pass
    return made
def receive(is_direct, size):
    with opened(is_direct) as made:
        made.sendall(b"%d\\n" % size)
        while size:
            size -= len(made.recv(1 << 20))
for _ in range({rounds}):
    for is_direct in (True, False):
        began = time.monotonic()
        receive(is_direct, {size})
        sent = time.monotonic()
        for _ in range({connections}):
            receive(is_direct, 1)
        print(sent - began, time.monotonic() - sent)
"""


def measure(folder: Path, say: Say) -> Measured:
    return asyncio.run(_measure(folder, say))


async def _measure(folder: Path, say: Say) -> Measured:
    figures: list[Figure] = []
    isolations: tuple[IsolationMode, ...] = ("bubblewrap", "gvisor")
    async with await asyncio.start_server(_send, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        for isolation in isolations:
            if isolation == "gvisor" and runsc() is None:
                figures.append(Figure.not_measured("network with gVisor", "runsc is missing"))
                continue
            say(f"network: {isolation}")
            async with _machine(folder / isolation, isolation) as session:
                figures += _figures(isolation, await _times(session, port))
    return Measured(figures, rows=f"{_MEGABYTES} MB")


def _figures(isolation: str, times: list[tuple[float, float]]) -> list[Figure]:
    direct, proxied = times[::2], times[1::2]
    ratios = [theirs / ours for (ours, _), (theirs, _) in zip(direct, proxied, strict=True)]
    rate = _MEGABYTES / median(whole for whole, _ in direct)
    made, asked = (
        1000 * median(short for _, short in each) / _CONNECTIONS for each in (direct, proxied)
    )
    return [
        Figure.at_least(f"network, {isolation}: throughput, direct ÷ proxy", ratios, _LEAST),
        Figure(f"network, {isolation}: direct", f"{rate:,.0f} MB/s"),
        Figure(f"network, {isolation}: a connection", f"{made:.1f} ms, by the proxy {asked:.1f}"),
    ]


async def _times(session: Session, port: int) -> list[tuple[float, float]]:
    sizes = {"size": _MEGABYTES * 1_000_000, "rounds": _ROUNDS, "connections": _CONNECTIONS}
    code = _CLIENT.format(host=HOST, port=port, **sizes)
    lines = (await shell(session, f"python3 -c '{code}'")).decode().splitlines()
    return [(float(whole), float(short)) for whole, short in map(str.split, lines)]


async def _send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As many bytes as the first line says."""
    left, chunk = int(await reader.readline()), bytes(1 << 20)
    while left:
        writer.write(chunk[:left])
        left -= min(left, len(chunk))
        await writer.drain()
    writer.close()


@asynccontextmanager
async def _machine(folder: Path, isolation: IsolationMode) -> AsyncIterator[Session]:
    runtime = LocalRuntime(folder, LocalOptions(egress_networks=(NETWORK,), isolation=isolation))
    run_id = new_run_id()
    limits = replace(LIMITS, memory_bytes=512 * MEGABYTE, processes=64)
    try:
        await runtime.start(run_id, replace(Program(None), network="internet"), limits)
        yield await runtime.session(run_id)
    finally:
        await end_all(runtime)
