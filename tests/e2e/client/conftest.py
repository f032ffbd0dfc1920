"""A server of the Broker and Telemetry that can be killed, and a proxy before it."""

from collections.abc import Iterator

import httpx
import pytest
from sandyard_client import Client, Connection, RetryPolicy

from tests.e2e.client.lossy_proxy import LossyProxy, lossy_proxy
from tests.e2e.client.restarting import RestartingServer, restarting_server

QUICKLY = RetryPolicy(within_sec=60, first_delay_sec=0.02, longest_delay_sec=0.5)


@pytest.fixture(scope="module")
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestartingServer]:
    """Of the parts that the module names; the Broker alone has a pool of a thousand."""
    environment = {"PARTS": request.module.PARTS, "LOG_LEVEL": "WARNING"}
    has_pool = request.module.PARTS == "broker"
    if has_pool:
        environment["CSP_BASE_URL"] = request.getfixturevalue("provider")
    data_dir = tmp_path_factory.mktemp("client") / "data"
    with restarting_server(data_dir, environment) as backend:
        if has_pool:
            _fill_pool(backend)
        yield backend


def _fill_pool(backend: RestartingServer) -> None:
    headers = backend.process.admin
    answer = httpx.post(f"{backend.url}/v1/admin/sync", headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text


@pytest.fixture
def proxy(backend: RestartingServer) -> Iterator[LossyProxy]:
    with lossy_proxy(backend.url) as proxy:
        yield proxy


@pytest.fixture
def connection(proxy: LossyProxy) -> Connection:
    return Connection(
        proxy.url,
        track_token="track-token-of-the-tests",
        telemetry_token="telemetry-token-of-the-tests",
    )


@pytest.fixture
def client(connection: Connection) -> Iterator[Client]:
    with Client(connection, retries=QUICKLY) as client:
        yield client
