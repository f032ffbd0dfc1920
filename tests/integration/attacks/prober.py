"""A track that claims ten times a second, and what it and its server notice of an attack."""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from statistics import quantiles

import httpx

from tests.support.servers.processes import ServerProcess
from tests.support.servers.users import signed_up

EVERY_SEC = 0.1
LONG_STEP_SEC = 0.05
_TRACKS = count()
_BUSY = re.compile(r'sandyard_event_loop_busy_seconds_bucket{le="(\S+)",process="main"} (\S+)')


@dataclass
class Claims:
    """What a track was answered."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies_sec: list[float] = field(default_factory=list)
    grown_bytes: int = 0
    """By how much the memory of the server's processes grew, at most."""
    worst_step_sec: float = 0
    """No step of the claims' event loop took longer."""

    @property
    def p99_sec(self) -> float:
        return quantiles(self.latencies_sec, n=100)[98]

    @property
    def failed(self) -> int:
        return self.statuses.total() - self.statuses[201]


class Prober:
    def __init__(self, server: ServerProcess) -> None:
        self._server = server

    async def probe(self, seconds: float) -> Claims:
        """Claim for so long."""
        self._steps()  # the first page takes longer than the others
        claims, steps, memory = Claims(), self._steps(), self._memory_bytes()
        async with httpx.AsyncClient(base_url=self._server.url, timeout=60) as client:
            calls = []
            for _ in range(int(seconds / EVERY_SEC)):
                calls.append(asyncio.create_task(self._claim(client, claims)))
                await asyncio.sleep(EVERY_SEC)
                claims.grown_bytes = max(claims.grown_bytes, self._memory_bytes() - memory)
            await asyncio.gather(*calls)
        longer = self._steps() - steps
        claims.worst_step_sec = max(longer, default=0)
        return claims

    async def _claim(self, client: httpx.AsyncClient, claims: Claims) -> None:
        headers = self._server.track | {"X-Track-ID": f"probe-{next(_TRACKS)}"}
        began = time.monotonic()
        try:
            answer = await client.post("/v1/allocate", headers=headers)
        except httpx.TransportError:
            claims.statuses[0] += 1
        else:
            claims.statuses[answer.status_code] += 1
        claims.latencies_sec.append(time.monotonic() - began)

    def _memory_bytes(self) -> int:
        return sum(map(_resident_bytes, (self._server.process.pid, self._server.tenants_pid)))

    def _steps(self) -> Counter[float]:
        """How many steps took up to so many seconds."""
        page = httpx.get(f"{self._server.url}/metrics", timeout=60).text
        found, below = Counter[float](), 0
        for limit, steps in _BUSY.findall(page):
            found[float(limit)], below = int(float(steps)) - below, int(float(steps))
        return found


def _resident_bytes(pid: int) -> int:
    [line] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(line) * 1024


@dataclass(frozen=True)
class Credentials:
    """What an attacker has: an account, and a client of the Broker with one lease."""

    account: dict[str, str]
    track: dict[str, str]

    @classmethod
    def new(cls, server: ServerProcess) -> "Credentials":
        client = {"name": "attacker", "scopes": ["allocate"], "max_leases": 1}
        made = httpx.post(
            f"{server.url}/v1/admin/clients", json=client, headers=server.admin, timeout=60
        ).raise_for_status()
        track = {"Authorization": f"Bearer {made.json()['token']}"}
        return cls(signed_up(server, "attacker", mail=1).headers, track)


@contextmanager
def attacked(name: str, url: str, credentials: Credentials) -> Iterator[None]:
    """While the attack of this name runs."""
    has = json.dumps({"url": url, **asdict(credentials)})
    command = [sys.executable, "-m", "tests.integration.attacks.attacks", name, has]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
        try:
            assert attacker.stdout is not None
            assert attacker.stdout.readline() == b"attacking\n"
            yield
            assert attacker.poll() is None, "it has ended by itself"
        finally:
            attacker.kill()
