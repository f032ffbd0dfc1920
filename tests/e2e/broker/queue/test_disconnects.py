"""Calls that wait and whose connection is closed: nothing is leased to nobody."""

import asyncio
import re
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.e2e.broker.requests import new_track
from tests.support.servers.processes import ServerProcess, csp_simulator, sandyard_serve

Close = Callable[[socket.socket], None]


class Lab:
    """A server whose pool has nothing free, and the provider that can make one more."""

    def __init__(self, server: ServerProcess, provider: str) -> None:
        self.server = server
        self._provider = provider

    def send(self, track: str, *headers: str) -> socket.socket:
        """An allocate that waits; its answer is not read."""
        address = urlsplit(self.server.url)
        assert address.hostname
        assert address.port
        sent = socket.create_connection((address.hostname, address.port), timeout=60)
        lines = [
            "POST /v1/allocate HTTP/1.1",
            f"Host: {address.netloc}",
            *(f"{name}: {value}" for name, value in self.server.track.items()),
            f"X-Track-ID: {track}",
            "Prefer: wait=60",
            "Content-Length: 0",
            *headers,
        ]
        sent.sendall("\r\n".join([*lines, "", ""]).encode())
        return sent

    async def metric(self, name: str) -> float:
        async with httpx.AsyncClient(base_url=self.server.url, timeout=60) as http:
            found = re.search(
                rf"^{re.escape(name)} (\S+)$", (await http.get("/metrics")).text, re.M
            )
            return float(found[1]) if found else 0.0

    async def until(self, name: str, value: float) -> None:
        async with asyncio.timeout(60):
            while await self.metric(name) != value:
                await asyncio.sleep(0.1)

    def grow(self) -> None:
        httpx.post(f"{self._provider}/_sim/sandboxes", json={"count": 1}, timeout=60)
        url = f"{self.server.url}/v1/admin/sync"
        assert httpx.post(url, headers=self.server.admin, timeout=60).json()["added"] == 1

    def names(self, status: str) -> list[str]:
        url = f"{self.server.url}/v1/admin/sandboxes"
        found = httpx.get(url, params={"status": status}, headers=self.server.admin, timeout=60)
        return [each["name"] for each in found.json()["sandboxes"]]

    def allocate(self, track: str) -> httpx.Response:
        headers = self.server.track | {"X-Track-ID": track, "Prefer": "wait=60"}
        return httpx.post(f"{self.server.url}/v1/allocate", headers=headers, timeout=90)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder: Path = tmp_path_factory.mktemp("disconnects")
    with csp_simulator(folder, "--count", "1") as provider:
        environment = {"CSP_BASE_URL": provider, "PARTS": "broker"}
        with sandyard_serve(folder / "data", environment=environment) as server:
            lab = Lab(server, provider)
            httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60)
            assert lab.allocate("first").status_code == 201
            yield lab


def close(sent: socket.socket) -> None:
    sent.close()


def reset(sent: socket.socket) -> None:
    sent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sent.close()


def half_close(sent: socket.socket) -> None:
    """Nothing more will be sent: HTTP servers take that for the end."""
    sent.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("headers", [(), ("Origin: http://localhost",)], ids=["direct", "ordinary"])
@pytest.mark.parametrize("end", [close, reset, half_close])
async def test_nothing_is_leased_to_a_caller_that_has_gone_and_its_retry_keeps_its_place(
    lab: Lab, end: Close, headers: tuple[str, ...]
) -> None:
    track, gone = new_track(), 'allocate_total{outcome="disconnected"}'
    left_before, leased_before = await lab.metric(gone), lab.names("allocated")
    sent = lab.send(track, *headers)
    await lab.until("queue_waiting", 1)
    end(sent)
    await lab.until(gone, left_before + 1)
    lab.grow()
    [kept] = lab.names("reserved")
    assert lab.names("allocated") == leased_before
    retry = lab.allocate(track)
    assert (retry.status_code, retry.json()["name"]) == (201, kept)
    sent.close()
