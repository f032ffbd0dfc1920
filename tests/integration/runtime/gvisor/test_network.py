"""A machine with its own kernel is paused while it has connections to hosts outside: they end."""

import asyncio
from pathlib import Path

from sandyard.kit.clock import SystemClock
from sandyard.runtime.local.server.machines import LocalMachines
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import Snapshot
from tests.integration.runtime.gvisor.test_memory import (
    ended,
    python,
    run_id,
    start,
    until_said,
)
from tests.support.services.package_indexes import HOST, NETWORK

_CLIENT = """
import socket, time
for number in range(1000):
    try:
        with socket.create_connection(("{host}", {port}), 5) as made:
            while True:
                made.sendall(b"hello")
                if not made.recv(100):
                    break
                print("answered", number, flush=True)
                time.sleep(0.05)
    except OSError as error:
        print("lost", number, error, flush=True)
        time.sleep(0.1)
"""


async def test_a_program_connects_again_after_a_pause(tmp_path: Path) -> None:
    options = LocalOptions(egress_networks=(NETWORK,))
    machines = LocalMachines(tmp_path / "runtime", options, SystemClock())

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(answer, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        session = await start(machines, 1, network="internet")
        client = await session.processes.start(python(_CLIENT.format(host=HOST, port=port)))
        await until_said(session, client, b"answered 0\n")
        await machines.stop(run_id(1), has_memory=True)
        snapshot = (await ended(machines, run_id(1))).snapshot
        assert isinstance(snapshot, Snapshot)
        session = await start(machines, 2, snapshot_id=snapshot.id, network="internet")
        await until_said(session, client, b"answered 1\n")
        await machines.stop(run_id(2))
        await ended(machines, run_id(2))
