"""A DynamoDB that refuses writes, or reads: what load balancers and Prometheus are told."""

import asyncio
import re
import time
from pathlib import Path

import httpx
import pytest

from sandyard.kit.free_ports import free_port
from tests.faults.cluster import Proxy, proxy_process
from tests.faults.index_lag import WRITES
from tests.support.servers.processes import ServerProcess, run_sandyard, sandyard_serve
from tests.support.storage.engines import AWS_ENVIRONMENT, dynamo_server

WAIT_SEC = 60
SCRAPE_SEC = 1.5
"""Less than a server gives an engine by itself."""


TOLD = {
    "error": "returns an error",
    "throttle": "throttles requests",
    "reset": "does not respond in time",
}
READS = frozenset({"GetItem"})
CALLS = {"broker": [WRITES, READS], "telemetry": [WRITES]}
"""Which calls are refused. Telemetry looks at its tables' descriptions, not into them."""
PROBES = {WRITES: "UpdateItem", READS: "GetItem"}
MORE = [
    *(("broker", fault) for fault in ("throttle", "reset")),
    *(("telemetry", fault) for fault in ("throttle", "error", "reset")),
]


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        ("broker", "error"),
        *(pytest.param(*each, marks=pytest.mark.torture) for each in MORE),
    ],
)
async def test_refused_writes_are_told_by_readyz_which_recovers_by_itself(
    tmp_path: Path, part: str, fault: str
) -> None:
    with dynamo_server() as engine:
        async with proxy_process(engine, seed=1) as proxy:
            settings = settings_of(part, proxy.url)
            await asyncio.to_thread(create_tables, settings, tmp_path)
            serving = sandyard_serve(tmp_path / "data", environment=settings)
            server = await asyncio.to_thread(serving.__enter__)
            try:
                for calls in CALLS[part]:
                    await refuse_and_recover(server, proxy, part, fault, calls)
            finally:
                await asyncio.to_thread(serving.__exit__, None, None, None)


async def test_a_scrape_does_not_wait_for_an_engine_that_throttles(tmp_path: Path) -> None:
    with dynamo_server() as engine:
        async with proxy_process(engine, seed=1) as proxy:
            settings = settings_of("broker", proxy.url)
            await asyncio.to_thread(create_tables, settings, tmp_path)
            serving = sandyard_serve(tmp_path / "data", environment=settings)
            server = await asyncio.to_thread(serving.__enter__)
            try:
                whole, _ = await scrape(server)
                await proxy.set(throttle=1)
                scrapes = [await scrape(server) for _ in range(3)]
            finally:
                await asyncio.to_thread(serving.__exit__, None, None, None)
    assert {"pool_total", "sandyard_job_interval_seconds"} <= whole
    assert min(seconds for _, seconds in scrapes) < SCRAPE_SEC
    for names, _ in scrapes:
        assert {"sandyard_job_interval_seconds", "request_latency_seconds"} <= names
        assert "pool_total" not in names


async def scrape(server: ServerProcess) -> tuple[set[str], float]:
    """As Prometheus does; the names of what is measured, and how long it took."""
    headers = {"X-Prometheus-Scrape-Timeout-Seconds": str(SCRAPE_SEC)}
    started = time.monotonic()
    async with httpx.AsyncClient(base_url=server.url, timeout=20) as client:
        shown = (await client.get("/metrics", headers=headers)).text
    return set(re.findall(r"^# TYPE (\S+)", shown, re.MULTILINE)), time.monotonic() - started


async def refuse_and_recover(
    server: ServerProcess, proxy: Proxy, part: str, fault: str, calls: frozenset[str]
) -> None:
    await proxy.set(**{fault: 1, "only": sorted(calls)})
    told = (await readyz_with(server, 503)).json()["error"]
    assert (told["details"]["engine"], told["details"]["part"]) == ("dynamodb", part)
    assert list(told["details"]["parts"]) == [part]
    assert told["message"] == (
        f"Not ready: the {part}'s dynamodb engine. "
        f"DynamoDB {TOLD[fault]} ({PROBES[calls]}). Try again shortly."
    )
    assert f'"reason":"{PROBES[calls]}: ' in server.log.read_text()
    assert (await proxy.look())["since_reset"]["injected"][fault]
    await proxy.set(**{fault: 0})
    await readyz_with(server, 200)


async def readyz_with(server: ServerProcess, status: int) -> httpx.Response:
    """The first answer with this status."""
    deadline = time.monotonic() + WAIT_SEC
    async with httpx.AsyncClient(base_url=server.url, timeout=20) as client:
        while (answer := await client.get("/readyz")).status_code != status:
            assert time.monotonic() < deadline, answer.text
            await asyncio.sleep(0.1)
    return answer


def settings_of(part: str, url: str) -> dict[str, str]:
    return AWS_ENVIRONMENT | {
        "PARTS": part,
        "POOL_STORE": "dynamodb",
        "TELEMETRY_STORE": "dynamodb",
        "DDB_ENDPOINT_URL": url,
        "DDB_TABLE_NAME": f"Pool-{free_port()}",
        "CSP_BASE_URL": "http://127.0.0.1:9",
    }


def create_tables(settings: dict[str, str], folder: Path) -> None:
    process = run_sandyard("tables", "create", environment=settings, log=folder / "tables.log")
    process.communicate(timeout=60)
    assert process.returncode == 0, (folder / "tables.log").read_text()
