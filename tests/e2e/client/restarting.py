"""A server that is killed and started again at the same address, with what it knew."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import ServerProcess, sandyard_serve


class RestartingServer:
    def __init__(self, data_dir: Path, environment: Mapping[str, str], stack: ExitStack) -> None:
        self._data_dir = data_dir
        self._environment = environment
        self._stack = stack
        self._port = free_port()
        self.process = self._start()

    def _start(self) -> ServerProcess:
        return self._stack.enter_context(
            sandyard_serve(self._data_dir, environment=self._environment, port=self._port)
        )

    @property
    def url(self) -> str:
        return self.process.url

    def restart(self) -> None:
        """Kill it in whatever it does, and start it again."""
        self.process.kill()
        self.process = self._start()

    def allocated(self, track: str) -> list[str]:
        """The sandboxes that the track has a lease of."""
        query = {"status": "allocated", "track": track}
        answer = httpx.get(
            f"{self.url}/v1/admin/sandboxes",
            params=query,
            headers=self.process.admin,
            timeout=30,
        )
        assert answer.status_code == 200, answer.text
        return [each["sandbox_id"] for each in answer.json()["sandboxes"]]

    def leases_made(self, track: str) -> int:
        """How many leases the track has ever had."""
        query = {"actor": f"track:{track}", "kind": "lease.created"}
        answer = httpx.get(
            f"{self.url}/v1/admin/events", params=query, headers=self.process.admin, timeout=30
        )
        assert answer.status_code == 200, answer.text
        return len(answer.json()["events"])


@contextmanager
def restarting_server(data_dir: Path, environment: Mapping[str, str]) -> Iterator[RestartingServer]:
    with ExitStack() as stack:
        yield RestartingServer(data_dir, environment, stack)
