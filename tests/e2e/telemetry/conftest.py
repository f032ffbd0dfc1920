"""One server with Telemetry alone for all tests of a module."""

from collections.abc import Iterator

import pytest

from tests.e2e.telemetry.api import Api
from tests.support.servers.processes import ServerProcess, sandyard_serve


@pytest.fixture(scope="module")
def telemetry_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("telemetry")
    with sandyard_serve(folder / "data", environment={"PARTS": "telemetry"}) as server:
        yield server


@pytest.fixture
def api(telemetry_server: ServerProcess) -> Iterator[Api]:
    api = Api(telemetry_server)
    yield api
    api.client.close()
