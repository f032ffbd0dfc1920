"""Ten minutes of load: neither the memory of a server grows, nor what it does when nobody calls."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.e2e.telemetry.api import Api
from tests.support.servers.processes import ServerProcess, csp_simulator, sandyard_serve

SECONDS = float(os.environ.get("SANDYARD_SOAK_SEC", "600"))
CALLERS = 8
SANDBOXES = 20_000
IDLE_SEC = 20.0
SETTLE_SEC = 5.0
GROWTH_BYTES = 30_000_000
"""What caches and the allocator may still take after the first tenth, in both processes."""
GROWTH_CPU = 0.01
"""Of a core."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with csp_simulator(tmp_path, "--count", str(SANDBOXES)) as provider:
        environment = {"CSP_BASE_URL": provider, "LOG_LEVEL": "WARNING"}
        with sandyard_serve(tmp_path / "data", environment=environment) as server:
            httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=120)
            yield server


@pytest.fixture
def api(server: ServerProcess) -> Iterator[Api]:
    api = Api(server)
    yield api
    api.client.close()


async def load(server: ServerProcess, api: Api, seconds: float, label: str) -> int:
    """Claims, their repeats, sandboxes given up, readings and health checks; how many of all."""
    done = 0
    deadline = time.monotonic() + seconds

    async def call(number: int) -> None:
        nonlocal done
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            turn = 0
            while time.monotonic() < deadline:
                turn += 1
                track = server.track | {"X-Track-ID": f"{label}-{number}-{turn % 200}"}
                answers = [
                    await client.post("/v1/allocate", headers=track),
                    await client.get("/healthz"),
                    await client.post(
                        "/telemetry/v1/data",
                        headers=api.device,
                        json={"readings": [api.reading()]},
                    ),
                ]
                assert {each.status_code for each in answers} <= {200, 201}
                done += len(answers)

    await asyncio.gather(*(call(number) for number in range(CALLERS)))
    return done


def anonymous_bytes(*pids: int) -> int:
    """Their own memory. The databases are mapped: pages of a file that grows are resident too, and
    the kernel takes them back when it needs them."""
    lines = [
        line.split()
        for pid in pids
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    ]
    return sum(1024 * int(size) for name, size, *_ in lines if name == "Anonymous:")


async def idle_cpu(process: psutil.Process) -> float:
    """The share of a core that it takes when nobody calls."""
    await asyncio.sleep(SETTLE_SEC)
    before = process.cpu_times()
    await asyncio.sleep(IDLE_SEC)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / IDLE_SEC


@pytest.mark.torture
@pytest.mark.timeout(1.1 * SECONDS + 300)
async def test_neither_memory_nor_idle_cpu_grows_under_load(
    server: ServerProcess, api: Api
) -> None:
    """It tells what it measured with `pytest -s`."""
    process = psutil.Process(server.process.pid)
    pids = (server.process.pid, server.tenants_pid)
    assert await load(server, api, SECONDS / 10, "first") > 100
    cpu, anonymous = await idle_cpu(process), anonymous_bytes(*pids)
    resident = process.memory_info().rss
    calls = await load(server, api, SECONDS, "second")
    cpu_after, anonymous_after = await idle_cpu(process), anonymous_bytes(*pids)
    sys.stdout.write(f"{calls:,} calls; anonymous {anonymous:,} -> {anonymous_after:,} bytes; ")
    sys.stdout.write(f"resident, with files, {resident:,} -> {process.memory_info().rss:,}; ")
    sys.stdout.write(f"idle {cpu:.2%} -> {cpu_after:.2%} of a core\n")
    assert calls > 1000
    assert cpu_after - cpu < GROWTH_CPU
    assert anonymous_after - anonymous < GROWTH_BYTES
    assert process.num_threads() < 100
