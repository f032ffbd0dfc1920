"""Replicas of the server on one engine, and the fault proxy of DynamoDB, that come and go."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from sandyard.kit.free_ports import free_port
from tests.support.servers.fork_server import ForkedProcess
from tests.support.servers.processes import run_sandyard, wait_until_ready

LAB_SEC = 9
LEASE_MAX_SEC = 90
MOST_EXTENSIONS = 1
"""A lease of 9 s may be lengthened by a minute once."""
TICKET_TTL_SEC = 5
TRACK_TOKEN = "track-token-of-the-tests"
ADMIN_TOKEN = "admin-token-of-the-tests"

SETTINGS = {
    "PARTS": "broker",
    "BROKER_API_TOKEN": TRACK_TOKEN,
    "BROKER_ADMIN_TOKEN": ADMIN_TOKEN,
    "CSP_API_TOKEN": "none",
    "LAB_DURATION_HOURS": str(LAB_SEC / 3600),
    "LEASE_MAX_HOURS": str(LEASE_MAX_SEC / 3600),
    "GRACE_PERIOD_MINUTES": "0.02",
    "CLEANUP_INTERVAL_SEC": "4",
    "AUTO_EXPIRY_INTERVAL_SEC": "4",
    "QUEUE_INTERVAL_SEC": "1",
    "QUEUE_TICKET_TTL_SEC": str(TICKET_TTL_SEC),
    "PROBE_INTERVAL_SEC": "2",
    "PROBE_THRESHOLD": "1",
    "RESERVATIONS_INTERVAL_SEC": "1",
    "POOL_MAX_TOTAL": "100000",
    "JOB_LEASE_SEC": "3",
    "DELETION_BACKOFF_BASE_SEC": "1",
    "LOG_LEVEL": "WARNING",
}


@dataclass(slots=True)
class Replica:
    """One `sandyard serve`, on a port that it keeps through all its lives."""

    folder: Path
    environment: Mapping[str, str]
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def data_dir(self) -> Path:
        return self.folder / str(self.port)

    async def start(self) -> None:
        """Until it answers, whether its engine does or not; also if it was being started."""
        if self.process is None:
            self.process = run_sandyard(
                *("serve", "--port", str(self.port), "--data-dir", str(self.data_dir)),
                environment=self.environment,
                log=self.folder / f"replica-{self.port}.log",
            )
        await asyncio.to_thread(wait_until_ready, self.url, self.process, "/healthz")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self._reap(10)

    async def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                await asyncio.to_thread(self._reap, 20)
            except subprocess.TimeoutExpired:
                self.kill()

    def _reap(self, seconds: float) -> None:
        assert self.process is not None
        self.process.wait(seconds)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None


@dataclass(slots=True)
class Proxy:
    """The fault proxy as a process of its own, told what to do over HTTP."""

    url: str
    control: httpx.AsyncClient

    async def set(self, **faults: Any) -> None:
        answer = await self.control.patch("/_faults", json=faults)
        assert answer.status_code == 200, answer.text

    async def look(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.control.get("/_faults")).json()
        return found

    async def settle(self) -> None:
        """Wait until every call that was held up has reached the engine or been dropped."""
        deadline = time.monotonic() + 20
        while (await self.look())["in_flight"]:
            assert time.monotonic() < deadline, "calls are stuck in the proxy"
            await asyncio.sleep(0.1)


@asynccontextmanager
async def proxy_process(engine_url: str, *, seed: int) -> AsyncIterator[Proxy]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ["--port", str(port), "--engine", engine_url, "--seed", str(seed)]
    process = ForkedProcess(
        [sys.executable, "-m", "tests.faults.proxy", *arguments],
        env={"PATH": os.environ["PATH"]},
        cwd=Path(__file__).parents[2],
    )
    try:
        await asyncio.to_thread(wait_until_ready, url, process, "/_faults")
        async with httpx.AsyncClient(base_url=url, timeout=20) as control:
            yield Proxy(url, control)
    finally:
        process.terminate()
        process.wait(60)


async def sync_at(server: Replica) -> None:
    """The provider's sandboxes are in the pool; again, as long as it is answered 503."""
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=120) as http:
        while (answer := await http.post("/v1/admin/sync")).status_code != httpx.codes.OK:
            assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE, answer.text
            await asyncio.sleep(0.5)


@asynccontextmanager
async def replicas(
    count: int, *, folder: Path, environment: Mapping[str, str]
) -> AsyncIterator[list[Replica]]:
    """So many of them, all answering; whatever became of them, none is left at the end."""
    all_of_them = [Replica(folder, {**SETTINGS, **environment}) for _ in range(count)]
    try:
        await asyncio.gather(*(each.start() for each in all_of_them))
        yield all_of_them
    finally:
        await asyncio.gather(*(each.stop() for each in all_of_them))
