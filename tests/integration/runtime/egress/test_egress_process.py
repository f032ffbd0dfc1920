"""The egress proxy runs in a process and under a user of its own, and may die."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandyard.runtime.local.host.processes import descendants
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.local.supervisor.machine_egress import EGRESS_UIDS
from sandyard.runtime.model import Running
from tests.integration.runtime.egress.test_egress_attacks import answers, host_server
from tests.integration.runtime.supervisor.test_crashes import supervisor_of
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import LIMITS, OBEDIENT, end_all, inside, started

_OPEN = replace(OBEDIENT, network="internet")
_BLOCKED = "CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n"


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path / "runtime", LocalOptions(egress_networks=("127.0.0.2/32",)))
    yield runtime
    await end_all(runtime)


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def proxies(runtime: LocalRuntime, running: Running) -> list[int]:
    """Processes of its supervisor under the user that proxies have."""
    spec = runtime.folder_of(running.run_id).spec()
    assert spec is not None
    assert spec.uid is not None
    uid = str(spec.uid + EGRESS_UIDS)
    below = descendants(supervisor_of(runtime, running.run_id))
    return [pid for pid in below if status_of(pid)["Uid"].split() == [uid] * 4]


async def test_the_proxy_has_no_right_beyond_its_own_user(runtime: LocalRuntime) -> None:
    async with started(runtime, _OPEN, LIMITS) as running:
        before = (await runtime.sample(running.run_id)).processes
        assert proxies(runtime, running) == [], "begun when somebody asks for it"
        [answer] = await answers(runtime, running, [_BLOCKED])
        assert answer.startswith("HTTP/1.1 403")
        [proxy] = proxies(runtime, running)
        status = status_of(proxy)
        assert status["Gid"].split() == status["Uid"].split()
        assert status["Groups"] == ""
        assert {status[name] for name in ("CapPrm", "CapEff", "CapBnd")} == {"0" * 16}
        assert status["NoNewPrivs"] == "1"
        assert Path(f"/proc/{proxy}/mem").stat().st_uid == 0, "it can't be looked into"
        kept = [str(each.readlink()) for each in Path(f"/proc/{proxy}/fd").iterdir()]
        assert not [
            each for each in kept if str(runtime.folder_of(running.run_id).workspace) in each
        ]
        assert (await runtime.sample(running.run_id)).processes == before, "it is not the machine's"


async def test_a_killed_proxy_comes_again_and_counts_on(runtime: LocalRuntime) -> None:
    async with (
        host_server("127.0.0.2") as (port, _),
        started(runtime, _OPEN, LIMITS) as running,
    ):
        request = f"GET http://127.0.0.2:{port}/ HTTP/1.1\r\n\r\n"
        for number in (1, 2):
            [_, answer] = await answers(runtime, running, [_BLOCKED, request])
            assert answer.endswith("secret")
            async with asyncio.timeout(10):
                while (report := await runtime.egress_report(running.run_id)).connections < number:
                    await asyncio.sleep(0.02)
            [proxy] = proxies(runtime, running)
            os.kill(proxy, signal.SIGKILL)
        assert (report.connections, report.refused) == (2, 2)
        assert [(each.host, each.count) for each in report.refusals] == [("127.0.0.1", 2)]


async def test_what_a_new_network_forbids_is_cut_off(runtime: LocalRuntime) -> None:
    silent = asyncio.Event()

    async def keep(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.close()

    async with (
        await asyncio.start_server(keep, "127.0.0.2", 0) as far,
        started(runtime, _OPEN, LIMITS) as running,
    ):
        port = far.sockets[0].getsockname()[1]
        code = f"""
import socket, threading
held = socket.create_connection(("127.0.0.1", 3128))
held.sendall(b"CONNECT 127.0.0.2:{port} HTTP/1.1\\r\\n\\r\\n")
held.recv(100)
def wait():
    held.recv(1)
    open("cut", "w").close()
threading.Thread(target=wait).start()
"""
        await inside(runtime, running, code)
        await runtime.set_network(running.run_id, "none")
        async with asyncio.timeout(10):
            while not (runtime.workspace_of(running.run_id) / "cut").exists():
                await asyncio.sleep(0.02)
        assert (await runtime.egress_report(running.run_id)).network == "none"
        silent.set()
