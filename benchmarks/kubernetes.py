"""What runs as a Pod, beside the cluster's own work: commands and files over TLS, and starts. The
cluster is the tests' stand-in, whose Pod is a real process at an address of this machine."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median

import aiohttp

from benchmarks.report import Figure, Measured, Say
from sandyard.runtime.kubernetes import model
from sandyard.runtime.kubernetes.machines import KubernetesMachines
from sandyard.runtime.kubernetes.manifest import name_of
from sandyard.runtime.model import MachineSpec, Program, RunId
from sandyard.runtime.sessions.model import Command, Process
from sandyard.runtime.sessions.ports import Session
from tests.support.kubernetes.cluster import Cluster
from tests.support.runtime.programs import LIMITS, new_run_id
from tests.support.runtime.runtimes import local_runtime
from tests.support.servers.gateway import BOX, OWNER, GatewayServer, gateway_server

_COMMANDS, _COMMAND_MS = 200, 15
_FILE_MB, _FILE_MB_PER_SEC, _ROUNDS = 200, 150, 5
_STARTS, _ADDED_MS = 5, 50
_PIECE = bytes(1 << 20)
_PORT, _LEAST_OF_LOCAL = 9000, 0.7
_SERVER = f"""
import socket
listening = socket.create_server(("127.0.0.1", {_PORT}))
while True:
    with listening.accept()[0] as connection:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: {_FILE_MB << 20}\\r\\n\\r\\n")
        for _ in range({_FILE_MB}):
            connection.sendall(bytes(1 << 20))
"""


def measure(folder: Path, say: Say) -> Measured:
    return asyncio.run(_measure(folder, say))


async def _measure(folder: Path, say: Say) -> Measured:
    cluster = Cluster(folder, 1, has_networks=False)
    await cluster.start()
    try:
        machines, _ = cluster.machines()
        say(f"kubernetes: {_STARTS} starts")
        added, writes = [], 0
        for _ in range(_STARTS + 1):
            cluster.api.calls.clear()
            run_id = new_run_id()
            added.append(await _start(cluster, machines, run_id) * 1000)
            writes = sum(method != "GET" for method, _ in cluster.api.calls)
            if len(added) <= _STARTS:
                await _end(machines, run_id)
        session = await machines.session(run_id)
        say(f"kubernetes: {_COMMANDS} commands")
        trips = [await _command(session) * 1000 for _ in range(_COMMANDS + 20)][20:]
        up, down, tar = [], [], []
        for number in range(1, _ROUNDS + 1):
            say(f"kubernetes: {_FILE_MB} MB, round {number} of {_ROUNDS}")
            up.append(_FILE_MB / await _send(session))
            down.append(_FILE_MB / await _receive(session.files.read("file")))
            tar.append(_FILE_MB / await _receive(session.files.read_tar(".")))
        gateways = await _compare_gateways(session, folder, say)
    finally:
        await cluster.close()
    return Measured(
        [
            Figure.below("command in a Pod over TLS, p50", median(trips), _COMMAND_MS, "ms"),
            Figure("  lowest", f"{min(trips):.1f} ms"),
            Figure.at_least(f"file of {_FILE_MB} MB into a Pod, MB/s", up, _FILE_MB_PER_SEC),
            Figure.at_least(f"file of {_FILE_MB} MB out of it, MB/s", down, _FILE_MB_PER_SEC),
            Figure.at_least(f"archive of {_FILE_MB} MB, MB/s", tar, _FILE_MB_PER_SEC),
            Figure.at_least("gateway to a Pod ÷ to a local sandbox", gateways, _LEAST_OF_LOCAL),
            Figure.below("a start beside the cluster's work", median(added[1:]), _ADDED_MS, "ms"),
            Figure("  lowest", f"{min(added[1:]):.1f} ms"),
            Figure("  writes to the API server", str(writes)),
        ]
    )


async def _compare_gateways(session: Session, folder: Path, say: Say) -> list[float]:
    """As the gateway reads a large response, in turn."""
    runtime = local_runtime(folder / "local")
    running = await runtime.start(new_run_id(), Program(None), LIMITS)
    try:
        local, ratios = await runtime.session(running.run_id), []
        for each in (session, local):
            await each.processes.start(Command(("python3", "-c", _SERVER)))
            while _PORT not in await each.ports.listening():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)
        async with gateway_server() as gateway, aiohttp.ClientSession() as client:
            gateway.boxes.add(BOX, OWNER, port=_PORT, at=_PORT, is_public=True)
            for number in range(1, _ROUNDS + 1):
                say(f"kubernetes: {_FILE_MB} MB by the gateway, round {number} of {_ROUNDS}")
                spent = []
                for each in (session, local):
                    gateway.boxes.machines[BOX] = each.ports  # type: ignore[assignment]
                    spent.append(await _receive(_from_gateway(client, gateway)))
                ratios.append(spent[1] / spent[0])
        return ratios
    finally:
        await runtime.stop(running.run_id)


async def _from_gateway(
    client: aiohttp.ClientSession, gateway: GatewayServer
) -> AsyncIterator[bytes]:
    headers = {"Host": gateway.host(port=_PORT)}
    async with client.get(f"http://127.0.0.1:{gateway.port}/", headers=headers) as answer:
        answer.raise_for_status()
        async for piece in answer.content.iter_any():
            yield piece


async def _start(cluster: Cluster, machines: KubernetesMachines, run_id: RunId) -> float:
    """The seconds before its Pod was ordered, and since it ran."""
    pods, name = cluster.api.objects["pods"], name_of(run_id)

    async def running() -> tuple[float, float]:
        while name not in pods:
            await cluster.api.changes()
        ordered = time.perf_counter()
        while not model.is_up(pods[name]):
            await cluster.api.changes()
        return ordered, time.perf_counter()

    watching, begun = asyncio.create_task(running()), time.perf_counter()
    await machines.create(run_id, MachineSpec(LIMITS, 3600))
    ended = time.perf_counter()
    ordered, ran = await watching
    return (ordered - begun) + (ended - ran)


async def _end(machines: KubernetesMachines, run_id: RunId) -> None:
    await machines.stop(run_id)
    await machines.refresh(run_id)


async def _command(session: Session) -> float:
    begun = time.perf_counter()
    async for each in session.processes.run(Command(("/bin/true",))):
        if isinstance(each, Process) and each.exit_code not in (None, 0):
            raise RuntimeError(f"it ended with {each.exit_code}")
    return time.perf_counter() - begun


async def _send(session: Session) -> float:
    async def content() -> AsyncIterator[bytes]:
        for _ in range(_FILE_MB):
            yield _PIECE

    begun = time.perf_counter()
    await session.files.write("file", content())
    return time.perf_counter() - begun


async def _receive(pieces: AsyncIterator[bytes]) -> float:
    begun, size = time.perf_counter(), 0
    async for piece in pieces:
        size += len(piece)
    if size < _FILE_MB * len(_PIECE):
        raise RuntimeError(f"only {size} bytes came")
    return time.perf_counter() - begun
