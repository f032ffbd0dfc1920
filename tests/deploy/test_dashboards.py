"""Every query of every dashboard, asked of a real Prometheus that scrapes a real server."""

import asyncio
import json
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import httpx

from sandyard.tools.gameday.processes import prometheus
from tests.e2e.telemetry.api import Api
from tests.support.servers.processes import ServerProcess, csp_simulator, sandyard_serve
from tests.support.servers.users import signed_up

DEPLOY = Path(__file__).parents[2] / "deploy"
_DATA_SEC = 120
_OF_CLUSTERS = "sandyard_pods"
"""Begins the metrics of servers whose sandboxes are Pods; test_gauges.py reads these."""


def queries() -> Iterator[tuple[str, str]]:
    """Each panel's name and query, over times as short as the test."""
    for path in sorted((DEPLOY / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                query = target["expr"].replace("$__rate_interval", "10s")
                if _OF_CLUSTERS not in query:
                    yield f"{path.stem}: {panel['title']}", query


class Traffic:
    """Calls of every part, some of them refused and some failing."""

    def __init__(self, server: ServerProcess, provider: str) -> None:
        self._server = server
        self._provider = provider
        self._board = Api(server)
        self._person = signed_up(server, "ann", mail=1)
        self._numbers = count()

    def once(self) -> None:
        server, number = self._server, next(self._numbers)
        track = server.track | {"X-Track-ID": f"track-{number}"}
        with httpx.Client(base_url=server.url, timeout=60) as http:
            leased = http.post("/v1/allocate", headers=track).raise_for_status().json()
            http.post(f"/v1/sandboxes/{leased['sandbox_id']}/mark-for-deletion", headers=track)
            http.post("/v1/admin/cleanup", headers=server.admin).raise_for_status()
            self._set_outage("error")
            assert http.post("/v1/admin/sync", headers=server.admin).status_code >= 500
            self._set_outage("none")
        self._board.register().raise_for_status()
        self._board.send(self._board.reading(), {"hardware_id": "none"})
        self._person.call("GET", "/projects")

    def close(self) -> None:
        self._board.client.close()

    def _set_outage(self, kind: str) -> None:
        httpx.patch(f"{self._provider}/_sim", json={"outage": kind}, timeout=60).raise_for_status()


async def has_data(http: httpx.AsyncClient, query: str) -> bool:
    answer = await http.get("/api/v1/query", params={"query": query})
    found = answer.raise_for_status().json()["data"]["result"]
    return any(not math.isnan(float(each["value"][1])) for each in found)


async def empty_ones(url: str, traffic: Traffic) -> Sequence[str]:
    """The queries that stay without data, while calls go on."""
    left = list(queries())
    assert len(left) > 20
    deadline = time.monotonic() + _DATA_SEC
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        while left and time.monotonic() < deadline:
            await asyncio.to_thread(traffic.once)
            left = [each for each in left if not await has_data(http, each[1])]
    return [f"{name}: {query}" for name, query in left]


async def test_every_query_gives_data(tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    assert program is not None
    with csp_simulator(tmp_path, "--count", "500") as provider:
        environment = {
            "CSP_BASE_URL": provider,
            "CSP_MAX_ATTEMPTS": "1",
            "CIRCUIT_BREAKER_THRESHOLD": "1000000",
        }
        with sandyard_serve(tmp_path / "data", environment=environment) as server:
            traffic = Traffic(server, provider)
            rules = DEPLOY / "prometheus" / "rules.yml"
            target = server.url.removeprefix("http://")
            watching = prometheus(program, tmp_path, rules, [target])
            await watching.start()
            try:
                left = await empty_ones(watching.url, traffic)
            finally:
                traffic.close()
                await watching.stop()
    assert left == []
