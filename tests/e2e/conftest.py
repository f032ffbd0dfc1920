"""One provider and one server for all tests of a module, as a user would start them; one server of
every part for all tests that only read from it."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.servers.processes import ServerProcess, csp_simulator, sandyard_serve

SANDBOXES = 1000


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a simulated provider with sandboxes from `sandbox-0001` on."""
    folder = tmp_path_factory.mktemp("provider")
    with csp_simulator(folder, "--count", str(SANDBOXES)) as url:
        yield url


@pytest.fixture(scope="module")
def server(provider: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose pool is full; one failed deletion is enough for `deletion_failed`."""
    environment = {
        "PARTS": "broker,telemetry",
        "CSP_BASE_URL": provider,
        "CSP_MAX_ATTEMPTS": "1",
        "DELETION_RETRY_MAX_ATTEMPTS": "1",
        "QUEUE_MAX_WAIT_SEC": "1",
    }
    folder = tmp_path_factory.mktemp("server")
    with sandyard_serve(folder / "data", environment=environment) as server:
        answer = httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=30)
        assert answer.status_code == 200, answer.text
        yield server


@pytest.fixture(scope="package")
def whole_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of every part."""
    folder = tmp_path_factory.mktemp("whole")
    with sandyard_serve(folder / "data") as server:
        yield server


@pytest.fixture(scope="package")
def document(whole_server: ServerProcess) -> dict[str, Any]:
    """The API's document, of every part."""
    answer = httpx.get(f"{whole_server.url}/openapi.json", timeout=60)
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found
