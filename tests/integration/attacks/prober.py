"""A track that claims ten times a second, and what it and its server notice of an attack."""

import asyncio
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import quantiles

import httpx

from tests.support.servers.processes import ServerProcess

EVERY_SEC = 0.1
_BUSY = re.compile(
    r'sandyard_event_loop_busy_seconds_(bucket{le="0\.05",process="main"}|count{process="main"}) '
    r"(\S+)"
)


@dataclass
class Claims:
    """What a track was answered."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies_sec: list[float] = field(default_factory=list)
    grown_bytes: int = 0
    """By how much the memory of the server's processes grew, at most."""
    long_steps: int = 0
    """Steps of the claims' event loop of more than 50 ms."""

    @property
    def p99_sec(self) -> float:
        return quantiles(self.latencies_sec, n=100)[98]


class Prober:
    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._tracks = count()

    async def probe(self, seconds: float) -> Claims:
        """Claim for so long."""
        self._long_steps()  # the first page takes longer than the others
        claims, steps, memory = Claims(), self._long_steps(), self._memory_bytes()
        async with httpx.AsyncClient(base_url=self._server.url, timeout=60) as client:
            calls = []
            for _ in range(int(seconds / EVERY_SEC)):
                calls.append(asyncio.create_task(self._claim(client, claims)))
                await asyncio.sleep(EVERY_SEC)
                claims.grown_bytes = max(claims.grown_bytes, self._memory_bytes() - memory)
            await asyncio.gather(*calls)
        claims.long_steps = self._long_steps() - steps
        return claims

    async def _claim(self, client: httpx.AsyncClient, claims: Claims) -> None:
        headers = self._server.track | {"X-Track-ID": f"probe-{next(self._tracks)}"}
        began = time.monotonic()
        answer = await client.post("/v1/allocate", headers=headers)
        claims.statuses[answer.status_code] += 1
        claims.latencies_sec.append(time.monotonic() - began)

    def _memory_bytes(self) -> int:
        return sum(map(_resident_bytes, (self._server.process.pid, self._server.tenants_pid)))

    def _long_steps(self) -> int:
        page = httpx.get(f"{self._server.url}/metrics", timeout=60).text
        found = {name[0]: float(value) for name, value in _BUSY.findall(page)}
        return int(found["c"] - found["b"])


def _resident_bytes(pid: int) -> int:
    [line] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line) * 1024


@contextmanager
def attacked(name: str, url: str) -> Iterator[None]:
    """While the attack of this name runs."""
    command = [sys.executable, "-m", "tests.integration.attacks.attacks", name, url]
    attacker = subprocess.Popen(command)
    try:
        yield
        assert attacker.poll() is None, "it has ended by itself"
    finally:
        attacker.kill()
        attacker.wait()
